//! Installs what the tests need from outside the project, and says what and why. Nothing is installed that is there.
//!
//! Debian packages come by `apt-get` when this runs as root or `sudo` asks no password; Python packages go into a virtual
//! environment under the target folder. What cannot be installed is said with the command that would do it; the tests
//! that need it then fail, each by name. A linker and a C compiler are not in the list: without `cc` this program could not
//! have been built.
//!
//! May use: `run`. Must not know: what the tests do with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run;
use crate::tally::Tally;

const REQUIREMENTS: &str = "tests/py/requirements.txt";

/// The file in a virtual environment that says what was installed into it.
const STAMP: &str = "installed.txt";

struct Need {
    packages: &'static [&'static str],
    why: &'static str,
    is_there: fn() -> bool,
}

const NEEDS: &[Need] = &[
    Need {
        packages: &["redis-tools"],
        why: "redis-cli and redis-benchmark talk to the server in the end-to-end tests",
        is_there: || {
            run::succeeds(Command::new("redis-cli").arg("--version"))
                && run::succeeds(Command::new("redis-benchmark").arg("--version"))
        },
    },
    Need {
        packages: &["redis-server"],
        why: "the benchmarks that measure beside Redis are run, in small",
        is_there: || run::succeeds(Command::new("redis-server").arg("--version")),
    },
    Need {
        packages: &["curl"],
        why: "curl talks HTTP to the server in the end-to-end tests",
        is_there: || run::succeeds(Command::new("curl").arg("--version")),
    },
    Need {
        packages: &["collectd-core"],
        why: "collectd writes points in the end-to-end tests",
        is_there: || Path::new("/usr/sbin/collectd").exists(),
    },
    Need {
        packages: &["prometheus"],
        why: "Prometheus scrapes the server and writes to it in the end-to-end tests",
        is_there: || run::succeeds(Command::new("prometheus").arg("--version")),
    },
    Need {
        packages: &["postgresql"],
        why: "transactions over a real PostgreSQL",
        is_there: || {
            let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
            let of_debian = versions.map(|version| version.path().join("bin/postgres"));
            let on_path = || run::succeeds(Command::new("postgres").arg("--version"));
            of_debian.into_iter().any(|path| path.exists()) || on_path()
        },
    },
    Need {
        packages: &["mariadb-server"],
        why: "transactions over a real MariaDB",
        is_there: || {
            Path::new("/usr/sbin/mariadbd").exists() || run::succeeds(Command::new("mariadbd").arg("--version"))
        },
    },
    Need {
        packages: &["python3", "python3-venv"],
        why: "redis-py, psycopg and libraries for InfluxDB and OpenTSDB are used in the end-to-end tests, pyarrow reads exports",
        is_there: || run::succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"])),
    },
    Need {
        packages: &["pkg-config", "libpq-dev", "libmariadb-dev"],
        why: "C programs that use libholdfast are compiled and run",
        is_there: || run::succeeds(Command::new("pkg-config").args(["--exists", "libpq", "libmariadb"])),
    },
];

/// Installs what is missing and returns the Python that has the packages of the tests, whether or not it could be made.
pub(crate) fn install(root: &Path, target: &Path, tally: &mut Tally) -> PathBuf {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !(need.is_there)()).collect();
    if missing.is_empty() {
        println!(
            "needed from outside: redis-cli, redis-benchmark, redis-server, curl, collectd, Prometheus, PostgreSQL, MariaDB, python3: all there"
        );
    } else {
        debian(&missing, tally);
    }
    let environment = target.join("e2e-python");
    python(root, &environment, tally);
    environment.join("bin/python")
}

fn debian(missing: &[&Need], tally: &mut Tally) {
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages.iter().copied()).collect();
    for need in missing {
        println!("missing: {} ({})", need.packages.join(", "), need.why);
    }
    let by_hand = format!("apt-get update && apt-get install --yes {}", packages.join(" "));
    let Some(mut update) = as_root("apt-get") else {
        println!("cannot install them: neither root nor sudo without a password. Please run as root: {by_hand}");
        return;
    };
    let Some(mut install) = as_root("apt-get") else { return };
    run::timed("apt-get update", update.args(["update", "--quiet"]), tally);
    install.args(["install", "--yes", "--quiet", "--no-install-recommends"]).args(&packages);
    if !run::timed("apt-get install", &mut install, tally) {
        println!("could not install them. Please run as root: {by_hand}");
    }
}

/// The program, run as root; `None` when that is not possible without asking somebody.
fn as_root(program: &str) -> Option<Command> {
    let id = Command::new("id").arg("-u").output().ok()?;
    let mut command = if id.stdout.trim_ascii() == b"0" {
        Command::new(program)
    } else if run::succeeds(Command::new("sudo").args(["-n", "true"])) {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "DEBIAN_FRONTEND=noninteractive", program]);
        sudo
    } else {
        return None;
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    Some(command)
}

fn python(root: &Path, environment: &Path, tally: &mut Tally) {
    let requirements = root.join(REQUIREMENTS);
    let wanted = fs::read_to_string(&requirements).unwrap_or_default();
    let stamp = environment.join(STAMP);
    let all = "import influxdb, influxdb_client, opentsdb, potsdb, psycopg, pyarrow, redis";
    let works = run::succeeds(Command::new(environment.join("bin/python")).args(["-c", all]));
    if works && fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        println!("needed from Python: {}: all there", wanted.trim().replace('\n', ", "));
        return;
    }
    println!("installing into {}: {}", environment.display(), wanted.trim().replace('\n', ", "));
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(environment);
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(&requirements);
    if run::timed("python3 -m venv", &mut venv, tally) && run::timed("pip install", &mut pip, tally) {
        if let Err(error) = fs::write(&stamp, &wanted) {
            println!("cannot write {}: {error}; the next run installs again", stamp.display());
        }
    } else {
        println!("could not. Please see to it that `python3 -m venv` works and pip reaches its index, then run again");
    }
}
