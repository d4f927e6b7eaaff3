//! The routes of scripts that are kept: by hash until the server stops, and by name in libraries of functions.
//!
//! May use: the table's types. Must not know: what operations do.

use super::table::{Access, Operation, Route, Verb};

const SCRIPTS: &str = "/scripts";
const LIBRARIES: &str = "/libraries";
const LIBRARY: &str = "/libraries/{library}";

/// What there is of scripts, running them apart.
pub(super) static ROUTES: &[Route] = &[
    Route {
        verb: Verb::Post,
        path: SCRIPTS,
        operation: Operation::LoadScript,
        access: Access::User,
        summary: "Compiles a script and remembers it until the server stops; answers the SHA-1 by which /execute runs it.",
        query: &[],
        statuses: &[200, 400, 404, 408, 411, 413, 415],
    },
    Route {
        verb: Verb::Get,
        path: "/scripts/{sha1}",
        operation: Operation::KnownScript,
        access: Access::User,
        summary: "Says whether a script with this SHA-1 is remembered.",
        query: &[],
        statuses: &[200, 404],
    },
    Route {
        verb: Verb::Delete,
        path: SCRIPTS,
        operation: Operation::ForgetScripts,
        access: Access::User,
        summary: "Forgets all scripts that are remembered by their SHA-1.",
        query: &[],
        statuses: &[204, 404],
    },
    Route {
        verb: Verb::Get,
        path: LIBRARIES,
        operation: Operation::Libraries,
        access: Access::User,
        summary: "Lists the libraries of functions, with their texts if these are asked for.",
        query: &["pattern", "code", "durability"],
        statuses: &[200, 400, 404, 413],
    },
    Route {
        verb: Verb::Post,
        path: LIBRARIES,
        operation: Operation::LoadLibrary,
        access: Access::Admin,
        summary: "Compiles a library of functions and keeps it in the store.",
        query: &["durability"],
        statuses: &[201, 400, 404, 408, 411, 412, 413, 415, 507],
    },
    Route {
        verb: Verb::Delete,
        path: LIBRARIES,
        operation: Operation::DeleteLibraries,
        access: Access::Admin,
        summary: "Deletes all libraries with their functions.",
        query: &["durability"],
        statuses: &[204, 400, 404, 507],
    },
    Route {
        verb: Verb::Get,
        path: LIBRARY,
        operation: Operation::Library,
        access: Access::User,
        summary: "A library: its functions, and its text.",
        query: &["durability"],
        statuses: &[200, 400, 404, 413],
    },
    Route {
        verb: Verb::Delete,
        path: LIBRARY,
        operation: Operation::DeleteLibrary,
        access: Access::Admin,
        summary: "Deletes a library with its functions.",
        query: &["durability"],
        statuses: &[204, 400, 404, 507],
    },
];
