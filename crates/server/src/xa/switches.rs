//! What is known of resource managers that this program cannot ask: switches in libraries. Programs in C open these.
//!
//! May use: `tm`. Must not know: what is said of it.

use tm::{Administration, BranchName, Profile, ResourceManagerKind, State, TransactionId};

/// The profile's.
pub(super) fn of(profile: &Profile) -> Vec<BranchName> {
    let is_switch = |kind: &ResourceManagerKind| matches!(kind, ResourceManagerKind::Xa { .. });
    let switches = profile.resource_managers.iter().filter(|manager| is_switch(&manager.kind));
    switches.map(|manager| manager.name.clone()).collect()
}

/// Their branches of committed transactions that may not know of it, as far as the coordinator remembers. What was
/// prepared and not decided is known to the resource managers alone.
pub(super) fn open<C: Administration + ?Sized>(
    coordinator: &C,
    switches: &[BranchName],
) -> tm::Result<Vec<(TransactionId, BranchName)>> {
    let mut open = Vec::new();
    if switches.is_empty() {
        return Ok(open);
    }
    let mut cursor = Some("0".to_owned());
    while let Some(from) = cursor {
        let page = coordinator.list(&from)?;
        for status in page.transactions.iter().filter(|status| status.state == State::Committed) {
            let branches = status.branches.iter().filter(|branch| branch.state == "open");
            let theirs = branches.filter(|branch| switches.contains(&branch.branch));
            open.extend(theirs.map(|branch| (status.id, branch.branch.clone())));
        }
        cursor = page.next;
    }
    Ok(open)
}
