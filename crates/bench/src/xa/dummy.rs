//! Two resource managers that answer at once, as a C library, and the profile that names them.
//!
//! May use: a C compiler, which linking Rust needs anyway. Must not know: who calls them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workload::{Failure, Result};

/// What XA asks of a switch, answered with XA_OK; nothing is ever in doubt there.
const SOURCE: &str = r#"
struct xid;
typedef struct {
    char name[32];
    long flags;
    long version;
    int (*open)(char *, int, long);
    int (*close)(char *, int, long);
    int (*start)(struct xid *, int, long);
    int (*end)(struct xid *, int, long);
    int (*rollback)(struct xid *, int, long);
    int (*prepare)(struct xid *, int, long);
    int (*commit)(struct xid *, int, long);
    int (*recover)(struct xid *, long, int, long);
    int (*forget)(struct xid *, int, long);
    int (*complete)(int *, int *, int, long);
} xa_switch;
static int info(char *text, int rmid, long flags) { return 0; }
static int done(struct xid *xid, int rmid, long flags) { return 0; }
static int none(struct xid *xids, long count, int rmid, long flags) { return 0; }
static int complete(int *handle, int *value, int rmid, long flags) { return -6; }
xa_switch bench_dummy = { "dummy", 2, 0, info, info, done, done, done, done, done, none, done, complete };
"#;

/// Compiles the library into `dir` and writes a profile with two of it, and what is said of the coordinator.
pub(crate) fn profile(dir: &Path, coordinator: &str) -> Result<PathBuf> {
    let (source, library, profile) = (dir.join("dummy.c"), dir.join("dummy.so"), dir.join("profile.toml"));
    std::fs::write(&source, SOURCE)?;
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source).status()?;
    if !built.success() {
        return Err(Failure::from("the C compiler `cc` did not compile the resource managers"));
    }
    let mut text = format!("[profiles.default.coordinator]\n{coordinator}\n");
    for name in ["one", "two"] {
        text.push_str(&format!(
            "\n[[profiles.default.resource_managers]]\nname = \"{name}\"\nkind = \"xa\"\nlibrary = \"{}\"\n\
             symbol = \"bench_dummy\"\n",
            library.display()
        ));
    }
    std::fs::write(&profile, text)?;
    Ok(profile)
}
