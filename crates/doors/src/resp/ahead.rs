//! Commands that stand behind in the same read: what they will look at is fetched while others run.
//!
//! A client that pipelines mostly sends the same command again with another id. So what stands behind is not parsed here: where its bytes are those
//! of the command before, up to the id and behind it, the id is known too.
//!
//! May use: `wire`, `session`. Must not know: sockets, what commands do.

use super::session::Session;
use super::wire::Args;
use crate::argument;

/// Most commands that are looked ahead for at once: they have to be in the processor's caches together.
const COMMANDS_MAX: usize = 16;

/// Fetches ahead for commands in `behind` that are as `args`, which was handled a moment ago. How many bytes need not be looked at again.
pub(crate) fn look(session: &Session, args: Args<'_>, command: &[u8], behind: &[u8]) -> usize {
    let Some(at) = id_at(args).filter(|_| !behind.is_empty()) else { return 0 };
    // The words of an inline command lie elsewhere.
    let Some(id) = args.place(at).filter(|id| command.get(id.clone()) == args.get(at)) else { return 0 };
    let mut commands = 0;
    let ids = same(command, id, behind).take(COMMANDS_MAX).inspect(|_| commands += 1).filter_map(argument::scalar);
    session.last_type.fetch_ahead(ids);
    commands * command.len()
}

/// Which word is the id, of a command that is about one entry by its id.
fn id_at(args: Args<'_>) -> Option<usize> {
    let is = |at: usize, name: &str| args.at(at).eq_ignore_ascii_case(name.as_bytes());
    match () {
        () if is(3, "id") && (is(0, "space.read") || is(0, "space.take")) => Some(4),
        () if is(0, "space.change") => Some(3),
        () => None,
    }
}

/// What stands at the place of `part` in commands that are as `command` but for that, one behind the other.
fn same<'b>(command: &'b [u8], part: std::ops::Range<usize>, behind: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
    behind.chunks_exact(command.len()).map_while(move |other| {
        let is_same =
            other.get(..part.start) == command.get(..part.start) && other.get(part.end..) == command.get(part.end..);
        other.get(part.clone()).filter(|_| is_same)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::wire::{Parser, Progress, WireLimits};

    fn parts(command: &str, part: &str, behind: &str) -> Vec<String> {
        let begin = command.find(part).unwrap();
        let same = same(command.as_bytes(), begin..begin + part.len(), behind.as_bytes());
        same.map(|part| String::from_utf8(part.to_vec()).unwrap()).collect()
    }

    #[test]
    fn the_id_is_where_each_command_has_it() {
        for (line, at) in [
            ("SPACE.READ s t ID 7", Some(4)),
            ("space.take s t id 7", Some(4)),
            ("SPACE.CHANGE s t 7 SET n 1", Some(3)),
            ("SPACE.CHANGE s t id SET n 1", Some(3)),
            ("SPACE.READ s t ANY", None),
            ("SPACE.MCHANGE s t ID 7 SET n 1", None),
            ("GET id", None),
        ] {
            let (mut parser, line) = (Parser::new(), format!("{line}\r\n"));
            let limits = WireLimits {
                line_bytes_max: 1 << 10,
                bulk_bytes_max: 1 << 10,
                command_bytes_max: 1 << 10,
                args_max: 10,
                unauthenticated: None,
            };
            assert!(matches!(parser.parse(line.as_bytes(), &limits), Ok(Progress::Command { .. })));
            assert_eq!(id_at(parser.args(line.as_bytes())), at, "{line}");
        }
    }

    #[test]
    fn of_commands_behind_only_those_are_seen_that_are_the_same_but_for_the_part() {
        let command = "$4\r\nREAD\r\n$2\r\n17\r\n";
        let with = |part: &str| command.replace("17", part);
        let all = [with("18"), with("17"), with("99")].concat();
        assert_eq!(parts(command, "17", &all), ["18", "17", "99"]);
        // One that is not whole yet, of another length, of another kind, or that ends otherwise: what stands behind it is not known.
        assert_eq!(parts(command, "17", &all[..all.len() - 1]), ["18", "17"]);
        for odd in [
            command.replace("$2\r\n17", "$3\r\n170"),
            command.replace("READ", "TAKE"),
            command.replace("17\r\n", "18__"),
        ] {
            assert_eq!(parts(command, "17", &[with("18"), odd, with("19")].concat()), ["18"]);
        }
        assert!(parts(command, "17", "").is_empty());
    }
}
