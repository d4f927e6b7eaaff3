//! What happens at one instant: waiting that ends when an entry comes, and leases that end when waiting does.

use std::future::Future;
use std::pin::Pin;
use std::sync::Barrier;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Waker};

use base::{Clock, Random, Time};
use holdfast::space::{Cancel, Change, Lease, Order, Path, ReadLock, Taking, Task};
use holdfast::{ErrorKind, Shown};

use super::*;

type Taken = Pin<Box<dyn Future<Output = holdfast::Result<Shown<holdfast::space::Entry>>> + Send>>;

/// One that waits to take, and what the model says that it got.
struct Waits {
    taken: Taken,
    customer: &'static str,
    until_ms: u64,
    got: Option<i64>,
}

/// An entry that is there until its lease ends.
struct There {
    id: i64,
    customer: &'static str,
    expires_ms: u64,
}

/// What a type is to do, in lists in the order of coming: those that wait, and the entries that nobody wants yet.
struct Model {
    entries: Entries,
    clock: Arc<base::ManualClock>,
    is_queue: bool,
    waiting: Vec<Waits>,
    there: Vec<There>,
    /// All that came, by id.
    leases: Vec<(&'static str, u64)>,
    given: BTreeSet<i64>,
    timeouts: usize,
}

impl Model {
    fn poll(taken: &mut Taken) -> Option<i64> {
        match taken.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(entry) => Some(id(&entry.unwrap().value)),
            Poll::Pending => None,
        }
    }

    /// It goes to the first who waits for it, or stays.
    fn comes(&mut self, entry: There) {
        let wants = |waits: &&mut Waits| waits.got.is_none() && waits.customer == entry.customer;
        match self.waiting.iter_mut().find(wants) {
            Some(first) => first.got = Some(entry.id),
            None => self.there.push(entry),
        }
    }

    fn write(&mut self, customer: &'static str, lease_ms: u64) {
        let id = self.leases.len() as i64;
        let expires_ms = self.clock.wall_ms() + lease_ms;
        let lease = Lease::For(Duration::from_millis(lease_ms));
        self.entries.write(&order(id, customer, 0), &WriteOptions { lease, ..upsert() }).unwrap();
        self.leases.push((customer, expires_ms));
        self.comes(There { id, customer, expires_ms });
    }

    fn begin(&mut self, customer: &'static str, wait_ms: u64) {
        let mut taken: Taken = Box::pin(self.entries.waiting(&example(customer), Taking::Take).unwrap());
        let candidates: Vec<i64> = self.there.iter().filter(|it| it.customer == customer).map(|it| it.id).collect();
        match Self::poll(&mut taken) {
            Some(id) => {
                assert!(if self.is_queue { candidates.first() == Some(&id) } else { candidates.contains(&id) });
                self.there.retain(|it| it.id != id);
                assert!(self.given.insert(id));
            }
            None => {
                assert!(candidates.is_empty(), "they are there, and {customer} waits");
                let until_ms = self.clock.wall_ms() + wait_ms;
                self.waiting.push(Waits { taken, customer, until_ms, got: None });
            }
        }
    }

    /// The waiting is over, as servers end it: what has come by then is taken.
    fn time_is_over(&mut self, place: usize) {
        let mut waits = self.waiting.remove(place);
        let got = Self::poll(&mut waits.taken);
        assert_eq!(got, waits.got);
        match got {
            Some(id) => assert!(self.given.insert(id), "{id} was given twice"),
            None => self.timeouts += 1,
        }
    }

    /// Nobody is there any more: what came goes back, as if it was written now.
    fn vanishes(&mut self, place: usize) {
        let Waits { taken, got, .. } = self.waiting.remove(place);
        drop(taken);
        if let Some(id) = got {
            let (customer, expires_ms) = self.leases[id as usize];
            if expires_ms > self.clock.wall_ms() {
                self.comes(There { id, customer, expires_ms });
            }
        }
    }

    /// All that happens at one instant, in any order.
    fn instant(&mut self, random: &mut Random) {
        let now_ms = self.clock.wall_ms();
        self.there.retain(|it| it.expires_ms > now_ms);
        let (mut writes, mut begins) = (random.below(4), random.below(4));
        loop {
            let late: Vec<usize> = (0..self.waiting.len()).filter(|at| self.waiting[*at].until_ms <= now_ms).collect();
            let customer = ["ada", "bob"][random.below(2) as usize];
            match random.below(4) {
                0 if writes > 0 => {
                    self.write(customer, 1 + random.below(4));
                    writes -= 1;
                }
                1 if begins > 0 => {
                    self.begin(customer, 1 + random.below(4));
                    begins -= 1;
                }
                2 if !late.is_empty() && random.chance(1, 6) => self.vanishes(late[0]),
                2 if !late.is_empty() => self.time_is_over(late[random.below(late.len() as u64) as usize]),
                _ if writes == 0 && begins == 0 && late.is_empty() => break,
                _ => {}
            }
        }
        let there = ids(&self.entries.read_many(&Wanted::all(), 1_000).unwrap());
        assert_eq!(there, self.there.iter().map(|it| it.id).collect());
        assert_eq!(self.entries.waiters(), self.waiting.iter().filter(|it| it.got.is_none()).count());
    }
}

/// Many time-outs, writes and ends of leases fall on the same millisecond, and none has two outcomes.
#[test]
fn at_one_instant_each_entry_goes_to_the_first_who_still_waits_or_stays_until_its_lease_ends() {
    for (seed, order) in
        [Order::Any, Order::Fifo, Order::Groups(Path::parse("customer").unwrap())].into_iter().enumerate()
    {
        let (store, clock) = with_clock();
        let is_queue = order != Order::Any;
        let entries = store.space("shop").declare(Definition { order, ..Definition::new("shop", "job") }).unwrap();
        let (waiting, there, leases, given) = (Vec::new(), Vec::new(), Vec::new(), BTreeSet::new());
        let clock_of = Arc::clone(&clock);
        let mut model = Model { entries, clock: clock_of, is_queue, waiting, there, leases, given, timeouts: 0 };
        let mut random = Random::new(seed as u64);
        for _ in 0..2_000 {
            model.instant(&mut random);
            if random.chance(1, 3) {
                store.step().unwrap();
            }
            clock.advance(Duration::from_millis(1));
        }
        assert!(model.given.len() > 500 && model.timeouts > 500, "{} {}", model.given.len(), model.timeouts);
    }
}

/// Writes come from one thread while another ends all waiting: whoever wins, nobody has both, and those who came first are served first.
#[test]
fn takers_whose_time_is_over_while_entries_come_have_one_outcome_each_in_the_order_of_coming() {
    const TAKERS: usize = 6;
    const WRITES: i64 = 4;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let orders = orders(&store);
    let (mut served, mut stayed) = (0, 0);
    for round in 0..300 {
        let (cancel, instant) = (Cancel::new(), Barrier::new(2));
        let reading = ReadOptions { cancel: Some(cancel.clone()), ..waits(600_000) };
        let first = round * WRITES;
        let got: Vec<i64> = std::thread::scope(|scope| {
            let mut takers = Vec::new();
            for number in 0..TAKERS {
                takers.push(scope.spawn(|| orders.take(&example("ada"), &reading).unwrap().map(|entry| id(&entry))));
                while orders.waiters() <= number {
                    std::thread::yield_now();
                }
            }
            scope.spawn(|| {
                instant.wait();
                for id in first..first + WRITES {
                    orders.write(&order(id, "ada", 0), &upsert()).unwrap();
                }
            });
            // Whoever is first: in one round of three the end of waiting is, in another a write.
            if round % 3 == 0 {
                cancel.cancel();
            }
            instant.wait();
            while round % 3 == 1 && orders.waiters() == TAKERS {
                std::thread::yield_now();
            }
            cancel.cancel();
            takers.into_iter().filter_map(|taker| taker.join().unwrap()).collect()
        });
        assert!(got.is_sorted() && got.iter().collect::<BTreeSet<_>>().len() == got.len(), "{got:?}");
        let left = orders.take_many(&Wanted::all(), 100, &now()).unwrap();
        served += got.len();
        stayed += left.len();
        let all: Vec<i64> = got.iter().copied().chain(left.iter().map(id)).collect();
        assert_eq!(
            (all.len() as i64, all.into_iter().collect()),
            (WRITES, (first..first + WRITES).collect::<BTreeSet<_>>())
        );
        assert_eq!(orders.waiters(), 0);
    }
    assert!(served > 0 && stayed > 0, "{served} were served and {stayed} stayed");
}

/// Who waited was passed over by whoever came when the lease of the locked entry before had ended: nobody had told him.
#[test]
fn the_end_of_the_lease_of_a_locked_entry_serves_who_waits_for_the_next_of_its_group() {
    let (store, clock) = with_clock();
    let definition =
        Definition { order: Order::Groups(Path::parse("customer").unwrap()), ..Definition::new("shop", "step") };
    let steps = store.space("shop").declare(definition).unwrap();
    let lease = WriteOptions { lease: Lease::For(Duration::from_millis(10)), ..upsert() };
    steps.write(&order(1, "ada", 0), &lease).unwrap();
    steps.write(&order(2, "ada", 0), &upsert()).unwrap();
    let mut reader = store.begin();
    steps.within(&mut reader).read(&Wanted::id(1), ReadLock::Shared, &now()).unwrap().unwrap();
    let mut waiting: Taken = Box::pin(steps.waiting(&example("ada"), Taking::Take).unwrap());
    assert_eq!(Model::poll(&mut waiting), None, "the first of its group is locked");
    clock.advance(Duration::from_millis(10));
    store.step().unwrap();
    let late = steps.take(&example("ada"), &now()).unwrap().map(|step| id(&step));
    assert_eq!((Model::poll(&mut waiting), late), (Some(2), None));
}

/// A clock that says when it was asked what time it is.
struct AskedClock {
    clock: base::ManualClock,
    asked: std::sync::Mutex<Option<Sender<()>>>,
}

impl Clock for AskedClock {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn wall_ms(&self) -> u64 {
        let now_ms = self.clock.wall_ms();
        if let Some(asked) = self.asked.lock().unwrap().take() {
            asked.send(()).unwrap();
        }
        now_ms
    }
}

/// It had looked at the clock before its turn came, and changed what others had been told to be gone.
#[test]
fn who_changes_an_entry_looks_at_its_lease_when_its_turn_has_come() {
    for is_write in [false, true] {
        let clock = Arc::new(AskedClock { clock: base::ManualClock::at(1_700_000_000_000), asked: Default::default() });
        let world = world(&base::memory::Disk::new(1), &MemoryLedgers::new());
        let world = World { clock: Arc::clone(&clock) as _, ..world };
        let store = Store::open_in(&world, std::path::Path::new("/store"), options()).unwrap();
        let definition = Definition { order: Order::Fifo, ..Definition::new("shop", "job") };
        let jobs = store.space("shop").declare(definition).unwrap();
        let lease = WriteOptions { lease: Lease::For(Duration::from_millis(10)), ..upsert() };
        jobs.write(&order(1, "ada", 0), &lease).unwrap();
        let set = [Change::Set { path: Path::parse("customer").unwrap(), value: "eve".into() }];
        let update = WriteOptions { mode: holdfast::space::WriteMode::Update, ..upsert() };
        std::thread::scope(|scope| {
            let task = |_: &mut Task<'_>| {
                let (asked, hears) = channel();
                *clock.asked.lock().unwrap() = Some(asked);
                let changer = scope.spawn(|| match is_write {
                    true => jobs.write(&order(1, "eve", 0), &update).map(drop).map_err(|error| error.kind()),
                    false => {
                        let changed = jobs.change(&Wanted::id(1), &set, &upsert()).unwrap();
                        changed.map(drop).ok_or(ErrorKind::Conflict)
                    }
                });
                // It does not ask while this task has the partition; if it did, it would have by then.
                let _ = hears.recv_timeout(Duration::from_millis(100));
                *clock.asked.lock().unwrap() = None;
                clock.clock.advance(Duration::from_millis(10));
                Ok(changer)
            };
            let changer = store.space("shop").execute_beside("job", None, task).unwrap();
            assert_eq!(changer.join().unwrap(), Err(ErrorKind::Conflict));
        });
    }
}
