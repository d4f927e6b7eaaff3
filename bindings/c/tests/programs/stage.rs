//! Compiles C programs against our headers and library, and runs them with a profile of monkeys.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::coordinator::Coordinator;

pub(crate) const STATIC: &str = "holdfast_monkey_static";
pub(crate) const DYNAMIC: &str = "holdfast_monkey_dynamic";
pub(crate) const ASYNC: &str = "holdfast_monkey_async";

/// Where cargo puts the libraries: beside this test program.
pub(crate) fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.with_file_name(name);
    assert!(path.exists(), "cargo did not build {}", path.display());
    path
}

pub(crate) fn monkey() -> PathBuf {
    built("libholdfast_xa_monkey.so")
}

pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A folder with our library under the names that linkers and programs look for.
pub(crate) fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let library = built("libholdfast_c.so");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).unwrap();
        for name in ["libholdfast.so", "libholdfast.so.0"] {
            symlink(&library, folder.join(name)).unwrap();
        }
        folder
    })
}

/// Compiles `tests/c/NAME.c` once, every warning an error.
pub(crate) fn compile(name: &str, libraries_too: &[&str]) -> PathBuf {
    let folder = libraries();
    let program = folder.join(format!("{name}-{:?}", std::thread::current().id()).replace(['(', ')'], ""));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-o"]).arg(&program);
    cc.arg(here("tests/c").join(format!("{name}.c"))).arg("-I").arg(here("include"));
    cc.arg("-L").arg(folder).arg(format!("-Wl,-rpath,{}", folder.display()));
    cc.args(["-lholdfast", "-lpthread", "-ldl"]).args(libraries_too);
    let output = cc.output().expect("a C compiler is there: without it this project cannot be built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A coordinator, a folder, and profiles in it.
pub(crate) struct Stage {
    pub(crate) folder: TempDir,
    pub(crate) coordinator: Coordinator,
    profiles: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Coordinator::start())
    }

    pub(crate) fn with(coordinator: Coordinator) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), coordinator, profiles: String::new() }
    }

    /// Monkeys by their switches and scripts, in the profile `default`.
    pub(crate) fn of_monkeys(monkeys: &[(&str, &str)]) -> Self {
        let mut stage = Self::new();
        stage.add_profile("default", monkeys);
        stage
    }

    pub(crate) fn add_profile(&mut self, profile: &str, monkeys: &[(&str, &str)]) {
        self.add_coordinator(profile);
        self.add_monkeys(profile, monkeys);
    }

    /// So many resource managers that keep no log and no state.
    pub(crate) fn add_crowd(&mut self, count: usize, script: &str) {
        let path = self.folder.path().join("script");
        fs::write(&path, script).unwrap();
        let (library, open) = (monkey().display().to_string(), format!("script={}", path.display()));
        for number in 0..count {
            self.add_switch("default", &format!("monkey{number}"), &library, STATIC, &open);
        }
    }

    fn add_monkeys(&mut self, profile: &str, monkeys: &[(&str, &str)]) {
        let base = self.folder.path().display().to_string();
        for (number, (symbol, script)) in monkeys.iter().enumerate() {
            let path = format!("{base}/{profile}-script{number}");
            fs::write(&path, script).unwrap();
            let open = format!("script={path};log={base}/log;state={base}/{profile}-state{number}");
            let library = monkey().display().to_string();
            self.add_switch(profile, &format!("monkey{number}"), &library, symbol, &open);
        }
    }

    pub(crate) fn add_coordinator(&mut self, profile: &str) {
        let address = self.coordinator.address();
        writeln!(self.profiles, "[profiles.{profile}.coordinator]\nservers = [\"{address}\"]").unwrap();
    }

    /// One more line of what was added last.
    pub(crate) fn add_line(&mut self, line: &str) {
        writeln!(self.profiles, "{line}").unwrap();
    }

    /// A coordinator in the program, with a directory of its own.
    pub(crate) fn add_embedded_coordinator(&mut self, profile: &str) {
        let directory = self.decisions();
        writeln!(self.profiles, "[profiles.{profile}.coordinator]\ndirectory = \"{}\"", directory.display()).unwrap();
    }

    /// The directory of such a coordinator.
    pub(crate) fn decisions(&self) -> PathBuf {
        self.folder.path().join("decisions")
    }

    /// A profile of monkeys whose programs decide for themselves.
    pub(crate) fn embedded(monkeys: &[(&str, &str)]) -> Self {
        let mut stage = Self::new();
        stage.add_embedded_coordinator("default");
        stage.add_monkeys("default", monkeys);
        stage
    }

    /// A resource manager behind a switch of a shared object.
    pub(crate) fn add_switch(&mut self, profile: &str, name: &str, library: &str, symbol: &str, open: &str) {
        let more = format!("kind = \"xa\"\nlibrary = \"{library}\"\nsymbol = \"{symbol}\"");
        self.add_resource_manager(profile, name, &more, open);
    }

    /// A resource manager; `more` are other lines of its table.
    pub(crate) fn add_resource_manager(&mut self, profile: &str, name: &str, more: &str, open: &str) {
        let profiles = &mut self.profiles;
        writeln!(profiles, "[[profiles.{profile}.resource_managers]]\nname = \"{name}\"\nopen = \"{open}\"").unwrap();
        writeln!(profiles, "{more}").unwrap();
    }

    /// Replaces a monkey's script.
    pub(crate) fn rewrite(&self, number: usize, script: &str) {
        fs::write(self.folder.path().join(format!("default-script{number}")), script).unwrap();
    }

    /// A command with our environment.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let path = self.folder.path().join("profiles.toml");
        fs::write(&path, format!("default = \"default\"\n{}", self.profiles)).unwrap();
        let mut command = Command::new(program);
        command.env("HOLDFAST_XA_PROFILE", path).env("MONKEY", monkey()).env_remove("HOLDFAST_XA_PROFILE_NAME");
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, program: &Path, words: &[&str]) -> Output {
        self.command(program).args(words).output().unwrap()
    }

    /// Plays calls, and returns what each answered.
    pub(crate) fn play(&self, words: &[&str]) -> Vec<String> {
        static PLAY: OnceLock<PathBuf> = OnceLock::new();
        let output = self.run(PLAY.get_or_init(|| compile("play", &[])), words);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// What all monkeys were asked, as `verb rmid flags`.
    pub(crate) fn calls(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            format!("{} {} {}", words[2], words[1], words[4])
        };
        log.lines().map(line).collect()
    }

    /// The verbs alone, without those of opening, listing and starting.
    pub(crate) fn verbs(&self) -> String {
        let calls = self.calls();
        let verbs = calls.iter().map(|call| call.split(' ').next().unwrap());
        let quiet = ["open", "close", "recover", "start", "complete"];
        verbs.filter(|verb| !quiet.contains(verb)).collect::<Vec<_>>().join(" ")
    }

    /// Branches that a monkey holds prepared.
    pub(crate) fn prepared(&self, number: usize) -> usize {
        fs::read_dir(self.folder.path().join(format!("default-state{number}"))).map_or(0, Iterator::count)
    }
}
