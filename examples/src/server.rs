//! A server of an example's own, for examples that run over a store in their process and over a server.
//!
//! May use: std, `tempfile`. Must not know: what an example does with it.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// What an example comes to.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A server on a folder that vanishes with it. Dropping it ends it.
pub struct Server {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Server {
    /// Starts the one that was built; `None` where none was.
    ///
    /// # Errors
    /// That it did not start.
    pub fn start() -> Outcome<Option<Self>> {
        // This program lies in target/<profile>/examples.
        let own = std::env::current_exe()?;
        let target = own.ancestors().nth(3).ok_or("a program lies somewhere")?;
        let built = ["release", "checked", "debug"].map(|profile| target.join(profile).join("holdfast"));
        let Some(program) = built.into_iter().find(|path| path.exists()) else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let any = "127.0.0.1:0";
        let mut child = Command::new(program)
            .args(["serve", "--resp", any, "--http", any, "--line", any, "--dir"])
            .arg(folder.path().join("data"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("its output is piped")?).lines();
        let mut server = Self { child, address: String::new(), _folder: folder };
        for line in lines.map_while(Result::ok) {
            if let Some(address) = line.strip_prefix("resp ") {
                address.trim().clone_into(&mut server.address);
            }
            if line.trim() == "ready" {
                return Ok(Some(server));
            }
        }
        server.stop();
        Err("the server did not start".into())
    }

    /// Where it speaks RESP.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Kills it.
    pub fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
