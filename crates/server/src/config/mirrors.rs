//! The keys of mirrors: which type follows into which table of which database.
//!
//! May use: `reading`, `file`, `columns`, `grid`, `tm` for certificates. Must not know: how mirrors run.

use std::fs;
use std::path::PathBuf;

use grid::{Columns, Database, IdKind, Refused};
use tm::{DatabaseTls, Identity};

use super::columns::{self, ColumnKeys};
use super::error::ConfigError;
use super::file::{IdWord, MirrorTable, MirrorTlsTable, RefusedWord};
use super::reading::Reading;

/// Each has a thread and a connection of its own.
const MIRRORS_MAX: usize = 64;
/// An address is a line.
const ADDRESS_BYTES_MAX: u64 = 64 << 10;

/// A type that is mirrored.
#[derive(Clone, Debug)]
pub(crate) struct Mirror {
    /// Its name in the target.
    pub(crate) name: String,
    pub(crate) space: String,
    /// The type of that space.
    pub(crate) type_name: String,
    pub(crate) database: Database,
    /// Called as the type when it is `None`.
    pub(crate) table: Option<String>,
    pub(crate) id: IdKind,
    /// Documents are in one column when it is `None`.
    pub(crate) columns: Option<Columns>,
    pub(crate) unique_ids: bool,
    /// Whether rows become entries at the start.
    pub(crate) load: bool,
    /// Whether entries that clients read by id, and the space has not, are looked for in the table.
    pub(crate) read_through: bool,
    /// What becomes of a transaction with a row that the table refuses.
    pub(crate) refused: Refused,
}

impl Mirror {
    /// Whether the target is MariaDB.
    pub(crate) fn is_in_mariadb(&self) -> bool {
        is_mariadb(&self.database.address)
    }
}

fn is_mariadb(address: &str) -> bool {
    address.starts_with("mysql://") || address.starts_with("mariadb://")
}

/// What is in force, without addresses, in which passwords may be.
pub(super) fn describe(mirrors: &[Mirror]) -> Vec<String> {
    let each = mirrors.iter().flat_map(|mirror| {
        let database = if mirror.is_in_mariadb() { "MariaDB" } else { "PostgreSQL" };
        let table = mirror.table.as_ref().unwrap_or(&mirror.type_name);
        let (name, space, of) = (&mirror.name, &mirror.space, &mirror.type_name);
        let loads = match (mirror.load, mirror.read_through) {
            (true, true) => ", which is loaded at the start and read through",
            (true, false) => ", which is loaded at the start",
            (false, true) => ", which is read through",
            (false, false) => "",
        };
        let aside = match mirror.refused {
            Refused::Stop => "",
            Refused::SetAside => ", or into holdfast_refused what that refuses",
        };
        let first = format!("mirror {name}: {of} of space {space} into the table {table} of {database}{loads}{aside}");
        let columns = mirror.columns.as_ref().map(columns::describe);
        std::iter::once(first).chain(columns.map(|columns| format!("mirror {name}: {columns}")))
    });
    each.collect()
}

impl Reading<'_> {
    pub(super) fn mirrors(&self, tables: Vec<MirrorTable>) -> Result<Vec<Mirror>, ConfigError> {
        if tables.len() > MIRRORS_MAX {
            let problem = format!("{} are too many; {MIRRORS_MAX} may be", tables.len());
            return Err(self.wrong("mirrors", problem));
        }
        let mut mirrors: Vec<Mirror> = Vec::with_capacity(tables.len());
        for (place, table) in tables.into_iter().enumerate() {
            let mirror = self.mirror(table, place + 1)?;
            let is_same = |other: &&Mirror| other.name == mirror.name;
            if mirrors.iter().any(|other| is_same(&other)) {
                let problem =
                    "there are two mirrors of this name; each needs one of its own, by which its target knows it";
                return Err(self.wrong(&format!("mirrors.{}.name", mirror.name), problem));
            }
            let is_same = |other: &&Mirror| (&other.space, &other.type_name) == (&mirror.space, &mirror.type_name);
            if mirror.read_through && mirrors.iter().any(|other| is_same(&other) && other.read_through) {
                let problem = "another mirror of this type is read through; entries are looked for in one table";
                return Err(self.wrong(&format!("mirrors.{}.read_through", mirror.name), problem));
            }
            mirrors.push(mirror);
        }
        Ok(mirrors)
    }

    /// A key is named by the mirror's place in the file, counted from 1, until it has a name.
    fn mirror(&self, table: MirrorTable, place: usize) -> Result<Mirror, ConfigError> {
        let present = |text: Option<String>| text.filter(|text| !text.is_empty());
        let missing = |key: &str, what: &str| self.wrong(key, format!("this is missing; {what}"));
        let name = present(table.name);
        let name = name.ok_or_else(|| missing(&format!("mirrors[{place}].name"), "give the mirror a name"))?;
        let key = |key: &str| format!("mirrors.{name}.{key}");
        if name.chars().any(char::is_control) {
            return Err(self.wrong(&format!("mirrors[{place}].name"), "a name has no control characters"));
        }
        let space = present(table.space).ok_or_else(|| missing(&key("space"), "name the space"))?;
        let type_name = present(table.type_name).ok_or_else(|| missing(&key("type"), "name the type of entries"))?;
        let address = match (present(table.address), table.address_file) {
            (Some(address), None) => address,
            (None, Some(file)) => self.address_in(&key("address_file"), file)?,
            (Some(_), Some(_)) => {
                return Err(self.wrong(&key("address"), "there is an address_file too; keep one of them"));
            }
            (None, None) => {
                let what = "say where the database is, such as \"host=127.0.0.1 user=shop dbname=shop\" or \
                            \"mysql://shop@127.0.0.1/shop\", or name a file that says it: address_file";
                return Err(missing(&key("address"), what));
            }
        };
        let (load, read_through) = (table.load.unwrap_or(false), table.read_through.unwrap_or(false));
        let refused = match table.refused.unwrap_or(RefusedWord::Stop) {
            RefusedWord::Stop => Refused::Stop,
            RefusedWord::SetAside if load || read_through => {
                let problem = "with load or read_through a row that is older than its entry would become an entry; \
                               have the mirror stop at what its table refuses: \"stop\"";
                return Err(self.wrong(&key("refused"), problem));
            }
            RefusedWord::SetAside => Refused::SetAside,
        };
        let MirrorTable { key: key_name, columns, rest, leave_out, .. } = table;
        let keys = ColumnKeys { key: key_name, columns, rest, leave_out, comes_back: load || read_through };
        let columns = self.columns(&name, keys)?;
        let tls = table.tls.map(|tls| self.database_tls(&key("tls"), tls)).transpose()?;
        let database = Database { address, tls };
        database.check().map_err(|error| self.wrong(&key("address"), error.to_string()))?;
        Ok(Mirror {
            space,
            type_name,
            database,
            table: present(table.table),
            id: match table.id.unwrap_or(IdWord::Integer) {
                IdWord::Integer => IdKind::Integer,
                IdWord::String => IdKind::String,
            },
            columns,
            unique_ids: table.unique_ids.unwrap_or(false),
            load,
            read_through,
            refused,
            name,
        })
    }

    /// The address that stands in a file, so that a password does not stand in the configuration.
    fn address_in(&self, key: &str, file: PathBuf) -> Result<String, ConfigError> {
        let file = self.beside(file);
        let wrong = |problem: String| self.wrong(key, format!("{}: {problem}", file.display()));
        let bytes = fs::metadata(&file).map_err(|error| wrong(error.to_string()))?.len();
        if bytes > ADDRESS_BYTES_MAX {
            return Err(wrong(format!("{bytes} bytes are too many for an address")));
        }
        let text = fs::read_to_string(&file).map_err(|error| wrong(error.to_string()))?;
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        line.map(str::to_owned).ok_or_else(|| wrong("there is no address in it".to_owned()))
    }

    fn database_tls(&self, key: &str, table: MirrorTlsTable) -> Result<DatabaseTls, ConfigError> {
        let missing = |name: &str, what: &str| self.wrong(&format!("{key}.{name}"), format!("this is missing; {what}"));
        let pem = "name a PEM file";
        let authorities = table.authorities.ok_or_else(|| missing("authorities", pem))?;
        let identity = match (table.certificate, table.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some(Identity { certificate: self.beside(certificate), key: self.beside(key) })
            }
            (None, Some(_)) => return Err(missing("certificate", pem)),
            (Some(_), None) => return Err(missing("key", pem)),
        };
        let tls = DatabaseTls { authorities: self.beside(authorities), identity };
        tls.client_config().map_err(|problem| self.wrong(key, problem))?;
        Ok(tls)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{error, load};
    use super::*;

    const GOOD: &str = "[[mirrors]]\nname = \"orders\"\nspace = \"shop\"\ntype = \"order\"\n";

    #[test]
    fn a_mirror_is_what_its_keys_say() {
        let more = "address = \"mariadb://shop:secret@db/shop\"\ntable = \"archive.orders\"\nid = \"string\"\nload = true\nread_through = true\n";
        let config = load(&format!("{GOOD}{more}"));
        let [mirror] = config.mirrors.as_slice() else { panic!("{:?}", config.mirrors) };
        assert!(mirror.is_in_mariadb() && mirror.load && !mirror.unique_ids && mirror.id == IdKind::String);
        assert_eq!(mirror.table.as_deref(), Some("archive.orders"));
        let described = describe(&config.mirrors);
        let wanted = "mirror orders: order of space shop into the table archive.orders of MariaDB, which is loaded at the start and read through";
        assert_eq!(described, [wanted]);
        assert!(!format!("{mirror:?}").contains("secret"));
    }

    #[test]
    fn what_is_refused_stops_a_mirror_unless_it_is_to_be_set_aside() {
        let address = "address = \"host=db\"\n";
        for (keys, refused, said) in [
            ("", Refused::Stop, ""),
            ("refused = \"stop\"\nload = true\n", Refused::Stop, ", which is loaded at the start"),
            ("refused = \"set-aside\"\n", Refused::SetAside, ", or into holdfast_refused what that refuses"),
        ] {
            let config = load(&format!("{GOOD}{address}{keys}"));
            assert_eq!(config.mirrors[0].refused, refused);
            let wanted = format!("mirror orders: order of space shop into the table order of PostgreSQL{said}");
            assert_eq!(describe(&config.mirrors), [wanted]);
        }
    }

    #[test]
    fn what_is_wrong_with_a_mirror_is_said_without_its_address() {
        let address = "address = \"host=db user=shop password=secret\"\n";
        for (text, wanted) in [
            ("[[mirrors]]\nspace = \"shop\"\n".to_owned(), "mirrors[1].name: this is missing; give the mirror a name"),
            ("[[mirrors]]\nname = \"a\\nb\"\n".to_owned(), "mirrors[1].name: a name has no control characters"),
            ("[[mirrors]]\nname = \"orders\"\n".to_owned(), "mirrors.orders.space: this is missing; name the space"),
            (
                "[[mirrors]]\nname = \"orders\"\nspace = \"shop\"\n".to_owned(),
                "mirrors.orders.type: this is missing; name the type of entries",
            ),
            (GOOD.to_owned(), "mirrors.orders.address: this is missing; say where the database is, such as"),
            (
                format!("{GOOD}{address}address_file = \"a\"\n"),
                "mirrors.orders.address: there is an address_file too; keep one of them",
            ),
            (format!("{GOOD}address_file = \"none\"\n"), "mirrors.orders.address_file: none: No such file"),
            (format!("{GOOD}address = \"hst=db password=secret\"\n"), "mirrors.orders.address: the target is not"),
            (
                format!("{GOOD}address = \"mysql://:secret:x\"\n"),
                "mirrors.orders.address: the target is not of the form",
            ),
            (
                format!("{GOOD}address = \"host=db password=two secretword=three\"\n"),
                "mirrors.orders.address: the target is not understood",
            ),
            (format!("{GOOD}{address}{GOOD}{address}"), "mirrors.orders.name: there are two mirrors of this name"),
            (
                format!("{GOOD}{address}read_through = true\n{GOOD}{address}read_through = true\n").replacen(
                    "\"orders\"",
                    "\"first\"",
                    1,
                ),
                "mirrors.orders.read_through: another mirror of this type is read through",
            ),
            (format!("{GOOD}{address}id = \"uuid\"\n"), ", line 6: mirrors.id: it cannot be"),
            (
                format!("{GOOD}{address}refused = \"skip\"\n"),
                ", line 6: mirrors.refused: it cannot be `skip`; there is `stop` or `set-aside`",
            ),
            (
                format!("{GOOD}{address}refused = \"set-aside\"\nload = true\n"),
                "mirrors.orders.refused: with load or read_through a row that is older than its entry would",
            ),
            (
                format!("{GOOD}{address}refused = \"set-aside\"\nread_through = true\n"),
                "mirrors.orders.refused: with load or read_through a row that is older than its entry would",
            ),
            (format!("{GOOD}{address}tls = {{ key = \"k\" }}\n"), "mirrors.orders.tls.authorities: this is missing"),
            (
                format!("{GOOD}{address}tls = {{ authorities = \"none.pem\", key = \"k\" }}\n"),
                "mirrors.orders.tls.certificate: this is missing; name a PEM file",
            ),
            (
                format!("{GOOD}{address}tls = {{ authorities = \"none.pem\" }}\n"),
                "mirrors.orders.tls: cannot use the certificates in none.pem",
            ),
            (format!("{GOOD}{address}").repeat(65), "mirrors: 65 are too many; 64 may be"),
        ] {
            let found = error(&text);
            let found = found.trim_start_matches("holdfast.toml").trim_start_matches([':', ' ']);
            assert!(found.starts_with(wanted), "{found}");
            assert!(!found.contains("secret"), "{found}");
        }
    }
}
