//! What others see of a transaction that stays open: that it is there, that it is in their way, and that it does not keep them
//! waiting when it ends.
//!
//! May use: the clients of `open_tests.rs`. Must not know: the inside of the door.

use super::*;

#[test]
fn who_waits_in_vain_for_a_lock_is_told_who_has_it() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":1}");
    let client = one.ask("CLIENT ID");
    let id = one.begin("TX.BEGIN");
    assert!(one.ask("SPACE.TAKE shop jobs ID 1").starts_with('{'));
    let told = format!("-TIMEOUT a transaction has locked the entry: {id} of client {}", &client[1..]);
    thread::scope(|scope| {
        let outside = scope.spawn(|| shop.client().ask("SPACE.WRITE shop jobs {\"id\":1}"));
        let within = scope.spawn(|| {
            let mut client = shop.client();
            client.check(&[("TX.BEGIN", ID)]);
            client.ask("SPACE.CHANGE shop jobs 1 SET by me")
        });
        let writes = scope.spawn(|| {
            other.check(&[("TX.BEGIN", ID)]);
            other.ask("SPACE.WRITE shop jobs {\"id\":1}")
        });
        for waits in [outside, within, writes] {
            assert_eq!(waits.join().unwrap(), told);
        }
    });
}
