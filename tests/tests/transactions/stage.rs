//! A server and the programs that have parts in one transaction, told what to do one after the other; whom one of them wants to be
//! killed is killed meanwhile.
//!
//! May use: `programs`, `patterns`. Must not know: patterns, what has to come of them.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use holdfast_tests::{Launch, Server};
use tempfile::TempDir;

use crate::bank::Reach;
use crate::patterns::Job;
use crate::programs::Program;

/// How long anything may take on a busy machine.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(90);

/// The server, and the programs.
pub(crate) struct Stage {
    folder: TempDir,
    launch: Launch,
    server: Option<Server>,
    address: String,
    programs: Vec<Player>,
    lines: Receiver<(usize, String)>,
    said: Sender<(usize, String)>,
    /// The step at which somebody died.
    pub(crate) death: Option<String>,
}

struct Player {
    program: Program,
    answers: VecDeque<String>,
    is_dead: bool,
    /// The file by which it learns of another one's death.
    dead: String,
}

impl Stage {
    /// With a server that recovers in both databases.
    pub(crate) fn new(reach: &Reach) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        std::fs::write(folder.path().join("profiles.toml"), reach.profile("bank", &address)).unwrap();
        let config = folder.path().join("holdfast.toml");
        std::fs::write(&config, "[xa]\nprofiles_file = \"profiles.toml\"\ninterval_seconds = 1\n").unwrap();
        let launch = Launch::new(&folder.path().join("data")).resp(&address);
        let launch = launch.argument("--config").argument(&config.display().to_string());
        let server = Some(launch.start_again());
        let (said, lines) = channel();
        Self { folder, launch, server, address, programs: Vec::new(), lines, said, death: None }
    }

    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    /// A file that is not there yet.
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// One more program, once it is ready.
    pub(crate) fn start(&mut self, job: &Job) {
        let (at, said) = (self.programs.len(), self.said.clone());
        let program = Program::start("pattern_tests::a_program_with_a_part", &job.to_words(), move |line| {
            // The test's own first words may stand before one of ours.
            let ours = ["answer ", "dies ", "wants "].iter().find_map(|word| line.find(word));
            let _ = ours.map(|start| said.send((at, line[start..].to_owned())));
        });
        self.programs.push(Player { program, answers: VecDeque::new(), is_dead: false, dead: job.dead.clone() });
        assert_eq!(self.answer(at).as_deref(), Some("ready"));
    }

    /// Tells a program to do something.
    pub(crate) fn tell(&mut self, at: usize, line: &str) {
        self.programs[at].program.tell(line);
    }

    /// What it answers; `None` when it dies, or is dead.
    pub(crate) fn answer(&mut self, at: usize) -> Option<String> {
        loop {
            let player = &mut self.programs[at];
            if let Some(answer) = player.answers.pop_front() {
                return Some(answer);
            }
            if player.is_dead {
                return None;
            }
            let (by, line) = self.lines.recv_timeout(ANSWER_TIME_MAX).expect("a program answers, or dies");
            let (word, text) = line.split_once(' ').unwrap();
            match word {
                "answer" => self.programs[by].answers.push_back(text.to_owned()),
                "dies" => {
                    self.programs[by].is_dead = true;
                    self.death = Some(text.to_owned());
                }
                _ => self.kill_server(by, text),
            }
        }
    }

    pub(crate) fn ask(&mut self, at: usize, line: &str) -> Option<String> {
        self.tell(at, line);
        self.answer(at)
    }

    fn kill_server(&mut self, by: usize, what: &str) {
        let step = what.strip_prefix("server ").expect("the server alone is killed");
        self.death = Some(step.to_owned());
        self.server.take().unwrap().kill();
        std::fs::write(&self.programs[by].dead, "").unwrap();
        self.server = Some(self.launch.start_again());
    }

    /// Kills the programs; the server stays, and recovers.
    pub(crate) fn end_programs(&mut self) {
        self.programs.clear();
    }

    pub(crate) fn said_by_server(&self) -> String {
        self.server.as_ref().map(|server| server.output().text()).unwrap_or_default()
    }
}
