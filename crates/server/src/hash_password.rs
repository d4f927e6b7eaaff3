//! `holdfast hash-password`: a password from a terminal or a pipe, its argon2 hash to standard output.
//!
//! A terminal is asked twice and shows nothing. From a pipe the password is everything up to one line end.
//!
//! May use: `doors::auth`, rustix. Must not know: the configuration file.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;

use doors::auth::hash_password as hash;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::failure::Failure;
use crate::output::say;

const PASSWORD_BYTES_MAX: usize = 1024;

/// Reads a password and prints its hash.
pub(crate) fn hash_password() -> Result<ExitCode, Failure> {
    let stdin = io::stdin();
    let password = if stdin.is_terminal() {
        let password = ask("password: ").map_err(Failure::Password)?;
        if ask("again: ").map_err(Failure::Password)? != password {
            return Err(Failure::PasswordUnfit("the two are not the same"));
        }
        password
    } else {
        let mut text = Vec::new();
        let most = PASSWORD_BYTES_MAX as u64 + 2;
        stdin.lock().take(most).read_to_end(&mut text).map_err(Failure::Password)?;
        without_line_end(text)
    };
    let password = fit(password).map_err(Failure::PasswordUnfit)?;
    say(hash(&password).map_err(Failure::Hash)?);
    Ok(ExitCode::SUCCESS)
}

fn fit(password: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    match password.len() {
        0 => Err("the password is empty"),
        // Files that hold one are read up to there.
        _ if password.iter().any(|byte| matches!(byte, b'\n' | b'\r')) => Err("the password has more than one line"),
        1..=PASSWORD_BYTES_MAX => Ok(password),
        _ => Err("the password is longer than 1024 bytes"),
    }
}

fn without_line_end(mut text: Vec<u8>) -> Vec<u8> {
    if text.last() == Some(&b'\n') {
        text.pop();
        if text.last() == Some(&b'\r') {
            text.pop();
        }
    }
    text
}

/// Asks a terminal without showing what is typed.
fn ask(prompt: &str) -> io::Result<Vec<u8>> {
    let mut err = io::stderr().lock();
    write!(err, "{prompt}").and_then(|()| err.flush())?;
    let stdin = io::stdin();
    let shown = tcgetattr(&stdin)?;
    let _restored = Restored { shown: shown.clone() };
    let mut hidden = shown;
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Now, &hidden)?;
    let mut line = Vec::new();
    stdin.lock().take(PASSWORD_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)?;
    writeln!(err)?;
    Ok(without_line_end(line))
}

/// Makes the terminal show again what is typed, however reading ends.
struct Restored {
    shown: Termios,
}

impl Drop for Restored {
    fn drop(&mut self) {
        // A terminal that is gone needs no mending.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_not_part_of_the_password_and_blanks_are() {
        for (text, wanted) in [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a ", " a "), ("\n", "")] {
            assert_eq!(without_line_end(text.into()), wanted.as_bytes());
        }
        assert!(fit(b"a\nb".to_vec()).is_err() && fit(b"a\rb".to_vec()).is_err());
        assert!(fit(Vec::new()).is_err() && fit(vec![0; 1025]).is_err() && fit(vec![0; 1024]).is_ok());
    }
}
