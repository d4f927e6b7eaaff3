//! Accounts in Holdfast itself, beside those of two databases: balances under keys, and balances in entries of a space.
//!
//! May use: `client`. Must not know: the databases, who kills what.

use std::path::Path;

use client::{Client, ConnectOptions, Entries, Transaction, TransactionOptions};
use holdfast::space::{Change, Definition, Document, Path as Field, ReadOptions, Value, Wanted, WriteOptions};
use holdfast::{Options, PutOptions, Store};

use crate::bank::{EACH, Problem};

const BALANCES: &[u8] = b"balances";
const TRANSFERS: &[u8] = b"transfers";

/// The accounts, and the transfers that both engines know of.
pub(crate) struct Books {
    data: Client,
    accounts: Entries,
    transfers: Entries,
}

/// A store in the process, or a client of a server.
pub(crate) async fn reached(place: &str) -> Result<Client, Problem> {
    Ok(match place.strip_prefix("dir:") {
        Some(dir) => Client::embedded(&Store::open(Path::new(dir), Options::default())?)?,
        None => Client::connect(ConnectOptions::new(place)).await?,
    })
}

impl Books {
    pub(crate) async fn open(data: Client) -> Result<Self, Problem> {
        let space = data.space("bank");
        let accounts = space.declare(Definition::new("bank", "accounts")).await?;
        let transfers = space.declare(Definition::new("bank", "transfers")).await?;
        Ok(Self { data, accounts, transfers })
    }

    /// So many accounts of each kind, full of money.
    pub(crate) async fn found(&self, accounts: i64) {
        for id in 0..accounts {
            let balance = EACH.to_string();
            self.data.kv().put(BALANCES, &key(id), balance.as_bytes(), &PutOptions::default(), None).await.unwrap();
            let account = Document::from_pairs([("id", id), ("money", EACH)]);
            self.accounts.write(&account, &WriteOptions::default()).await.unwrap();
        }
    }

    /// Changes the balance under a key and the one in an entry by so much each, in a transaction that is not committed yet.
    pub(crate) async fn transfer(&self, id: &str, account: i64, by: [i64; 2]) -> Result<Transaction, Problem> {
        let mut data = self.data.begin(&TransactionOptions::default()).await?;
        let balance = data.get_value(BALANCES, &key(account)).await?;
        let balance = (number(balance) + by[0]).to_string();
        data.put(BALANCES, &key(account), balance.as_bytes(), &PutOptions::default()).await?;
        data.put(TRANSFERS, id.as_bytes(), b"", &PutOptions::default()).await?;
        let more = [Change::Increment { path: Field::parse("money")?, by: by[1].into() }];
        let changed = data.change(&self.accounts, &Wanted::id(account), &more, &WriteOptions::default()).await?;
        changed.ok_or("an account is gone")?;
        let transfer = Document::from_pairs([("id", id)]);
        data.write(&self.transfers, &transfer, &WriteOptions::default()).await?;
        Ok(data)
    }

    /// All money under keys, and in entries.
    pub(crate) async fn money(&self, accounts: i64) -> [i64; 2] {
        let mut money = [0; 2];
        for id in 0..accounts {
            money[0] += number(self.data.kv().get_value(BALANCES, &key(id)).await.unwrap());
            // Of a transaction that is over no lock is left: this does not wait.
            let entry = self.accounts.read(&Wanted::id(id), &ReadOptions::default()).await.unwrap().unwrap();
            money[1] += match entry.document.get("money").map(|value| value.to_value()) {
                Some(Value::I64(money)) => money,
                other => panic!("account {id} has {other:?}"),
            };
        }
        money
    }

    /// Whether both engines know these transfers, and the space no other.
    pub(crate) async fn know(&self, transfers: &[String]) {
        for id in transfers {
            let of_key = self.data.kv().get_value(TRANSFERS, id.as_bytes()).await.unwrap();
            let entry = self.transfers.read(&Wanted::id(id.as_str()), &ReadOptions::default()).await.unwrap();
            assert!(of_key.is_some() && entry.is_some(), "{id}: key {}, entry {}", of_key.is_some(), entry.is_some());
        }
        assert_eq!(self.transfers.count(&Wanted::all()).await.unwrap(), transfers.len() as u64);
    }
}

fn key(account: i64) -> Vec<u8> {
    format!("account-{account}").into_bytes()
}

fn number(balance: Option<Vec<u8>>) -> i64 {
    String::from_utf8(balance.expect("every account is there")).unwrap().parse().unwrap()
}
