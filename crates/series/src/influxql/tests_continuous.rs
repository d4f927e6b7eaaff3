//! Continuous queries: what is kept of them, what is refused, and when they run over what.

use proptest::prelude::*;

use super::ast::Kind;
use super::tests::{SECOND, machines};
use super::tests_clients::selections;
use super::*;

fn kept(text: &str) -> ContinuousQuery {
    match &parse(text, &Parameters::new()).unwrap().pop().unwrap().kind {
        Kind::CreateContinuousQuery(query) => query.kept(0),
        other => panic!("{other:?}"),
    }
}

/// `tests_influxdb_continuous.txt` is what InfluxDB was told and what it shows then.
#[test]
fn queries_are_kept_as_influxdb_shows_them_and_mean_the_same_when_they_are_read_again() {
    for pair in include_str!("tests_influxdb_continuous.txt").split("\n\n") {
        let (said, shown) = pair.split_once('\n').unwrap();
        let query = kept(said);
        assert_eq!(query.text, shown.trim(), "{said}");
        assert_eq!(kept(&query.text).text, query.text);
        Schedule::of(&query).unwrap();
    }
    // Digits that InfluxDB would lose are kept.
    let text = "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT mean(v) * 1.23456789 INTO o FROM m GROUP BY time(1s) END";
    assert!(kept(text).text.contains("mean(v) * 1.23456789 INTO"), "{}", kept(text).text);
    let text =
        "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT mean(v) - (1 - (2 - 3)) INTO o FROM m GROUP BY time(1s) END";
    assert!(kept(text).text.contains("mean(v) - (1 - (2 - 3)) INTO"), "{}", kept(text).text);
}

fn refusal(text: &str) -> String {
    let model = machines();
    let env = Env { source: &model, database: "db", now: 0, may_see: &|_| true };
    let statements = match parse(text, &Parameters::new()) {
        Ok(statements) => statements,
        Err(error) => return error.to_string(),
    };
    statements.first().unwrap().change(&env).unwrap_err().to_string()
}

#[test]
fn what_can_never_run_is_refused() {
    for pair in include_str!("tests_influxdb_refused.txt").split("\n\n") {
        let (text, wanted) = pair.split_once('\n').unwrap();
        assert_eq!(refusal(text), wanted.trim(), "{text}");
    }
    let endless = "CREATE CONTINUOUS QUERY x ON db BEGIN SELECT mean(v) INTO o FROM m GROUP BY time(10s)";
    assert!(refusal(endless).starts_with("error parsing query: found EOF, expected END at line 1"));
    // InfluxDB keeps these, and they fail, or do nothing, whenever they run.
    let within = |select: &str| refusal(&format!("CREATE CONTINUOUS QUERY q ON db BEGIN SELECT {select} END"));
    let no_policy = "retention policy not found: 1y: there is autogen alone; name another measurement, or another database as db..m";
    for (select, wanted) in [
        (
            "v INTO o FROM m GROUP BY host",
            "error parsing query: found host, expected GROUP BY time(...) at line 1, char 71",
        ),
        ("v INTO o FROM m GROUP BY time(1m)", "GROUP BY requires at least one aggregate function"),
        ("foo(v) INTO o FROM m GROUP BY time(1m)", "undefined function foo()"),
        ("mean(v), a INTO o FROM m GROUP BY time(1m)", "mixing aggregate and non-aggregate queries is not supported"),
        ("abs(v) INTO o FROM m GROUP BY time(1m)", "GROUP BY requires at least one aggregate function"),
        // The means replaced what they were the means of.
        ("mean(v) AS v INTO \"1y\".m FROM m GROUP BY time(1m)", no_policy),
        ("mean(v) INTO db.\"1y\".:MEASUREMENT FROM m GROUP BY time(1m)", no_policy),
    ] {
        assert_eq!(within(select), wanted, "{select}");
    }
}

#[test]
fn queries_need_rights_on_what_they_read_and_write() {
    let needs = |text: &str| parse(text, &Parameters::new()).unwrap().pop().unwrap().needs("db");
    let need = |database: &str, need| (database.to_owned(), need);
    assert_eq!(
        needs("SELECT v INTO a..m FROM b..m, (SELECT v FROM c..m), d"),
        [need("a", Need::Write), need("b", Need::Read), need("c", Need::Read), need("db", Need::Read)]
    );
    assert_eq!(
        needs("CREATE CONTINUOUS QUERY q ON x BEGIN SELECT mean(v) INTO a..m FROM m GROUP BY time(1m) END"),
        [need("a", Need::Write), need("x", Need::Read), need("x", Need::Write)]
    );
    assert_eq!(needs("DROP CONTINUOUS QUERY q ON x"), [need("x", Need::Write)]);
    assert_eq!(needs("SHOW SERIES CARDINALITY ON x"), [need("x", Need::Read)]);
}

/// The runs of a query from one moment to another, in seconds: when, from, to.
fn runs(resample: &str, group: &str, from: i64, to: i64) -> Vec<(i64, i64, i64)> {
    let text =
        format!("CREATE CONTINUOUS QUERY q ON db {resample} BEGIN SELECT mean(v) INTO o FROM m GROUP BY {group} END");
    let schedule = Schedule::of(&kept(&text)).unwrap();
    let (mut through, mut all) = (from * SECOND, Vec::new());
    loop {
        let next = schedule.next(through);
        if next > to * SECOND {
            return all;
        }
        assert_eq!(schedule.due(through, next - 1), None, "{text}");
        let due = schedule.due(through, next).unwrap();
        assert_eq!((due.through, due.missed, due.left_out), (next, 0, 0));
        through = due.through;
        let range = due.range.map_or((0, 0), |range| (range.from / SECOND, (range.to + 1) / SECOND));
        all.push((next / SECOND, range.0, range.1));
    }
}

#[test]
fn queries_run_at_their_boundaries_over_their_windows() {
    assert_eq!(runs("", "time(10s)", 5, 30), [(10, 0, 10), (20, 10, 20), (30, 20, 30)]);
    assert_eq!(runs("", "time(10s, 3s)", 5, 30), [(13, 3, 13), (23, 13, 23)]);
    assert_eq!(runs("RESAMPLE EVERY 30s", "time(10s)", 5, 60), [(30, 0, 30), (60, 30, 60)]);
    // Within a window it is computed as far as it has come.
    assert_eq!(runs("RESAMPLE EVERY 5s", "time(10s)", 0, 20), [(5, 0, 10), (10, 0, 10), (15, 10, 20), (20, 10, 20)]);
    assert_eq!(runs("RESAMPLE FOR 30s", "time(10s)", 30, 50), [(40, 10, 40), (50, 20, 50)]);
    assert_eq!(runs("RESAMPLE EVERY 20s FOR 60s", "time(10s)", 60, 100), [(80, 20, 80), (100, 40, 100)]);
    // A day of 23 hours.
    let days = runs("", "time(1d) TZ('Europe/Berlin')", 1_616_857_200, 1_617_000_000);
    assert_eq!(days, [(1_616_886_000, 1_616_799_600, 1_616_886_000), (1_616_968_800, 1_616_886_000, 1_616_968_800)]);
    // One of 25, which was computed never: a day of 24 hours before its end lies within it.
    let (autumn, november) = (1_635_631_200, 1_635_721_200);
    for resample in ["", "RESAMPLE FOR 1d"] {
        let days = runs(resample, "time(1d) TZ('Europe/Berlin')", autumn, november + 86_400);
        assert_eq!(days, [(november, autumn, november), (november + 86_400, november, november + 86_400)]);
    }
    let days = runs("RESAMPLE FOR 2d", "time(1d) TZ('Europe/Berlin')", november - 1, november + 86_400);
    assert_eq!(days, [(november, autumn - 86_400, november), (november + 86_400, autumn, november + 86_400)]);
    // Each hour of it the whole day as far as it has come, and all of it at its end.
    let hours = runs("RESAMPLE EVERY 1h", "time(1d) TZ('Europe/Berlin')", autumn, november + 3600);
    assert_eq!(hours.len(), 26);
    assert!(hours.iter().take(25).all(|run| (run.1, run.2) == (autumn, november)), "{hours:?}");
    // Runs at no multiple of a window leave none out.
    let all = runs("RESAMPLE EVERY 90s", "time(1m)", 0, 540);
    assert_eq!(all, [(90, 0, 60), (180, 60, 180), (270, 180, 240), (360, 240, 360), (450, 360, 420), (540, 420, 540)]);
}

#[test]
fn a_clock_that_was_far_ahead_silences_no_query() {
    let text = "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT mean(v) INTO o FROM m GROUP BY time(10s) END";
    let schedule = Schedule::of(&kept(text)).unwrap();
    assert_eq!(schedule.set_back(100 * SECOND, 95 * SECOND), None);
    assert_eq!(schedule.set_back(1_000_000 * SECOND, 95 * SECOND), Some(90 * SECOND));
}

#[test]
fn an_offset_told_by_now_is_refused_and_what_is_selected_from_is_confined_too() {
    let query = |from: &str, group: &str| ContinuousQuery {
        database: "db".into(),
        name: "q".into(),
        text: format!("CREATE CONTINUOUS QUERY q ON db BEGIN SELECT mean(v) INTO o FROM {from} GROUP BY {group} END"),
        through: 0,
    };
    let told = Schedule::of(&query("m", "time(1m, now())")).unwrap_err().to_string();
    assert!(told.contains("cannot be told by now()"), "{told}");
    let inner = "(SELECT max(v) AS v FROM m WHERE time > now() - 5m GROUP BY time(10s))";
    let schedule = Schedule::of(&query(inner, "time(1m)")).unwrap();
    let statement = format!("{:?}", schedule.statement(Range { from: 7, to: 9 }));
    assert_eq!(statement.matches("within: Some(Range { from: 7, to: 9 })").count(), 2, "{statement}");
}

#[test]
fn runs_that_were_missed_are_made_up_for_in_few_as_far_as_is_bounded() {
    let text = "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT mean(v) INTO o FROM m GROUP BY time(10s) END";
    let schedule = Schedule::of(&kept(text)).unwrap();
    let due = schedule.due(20 * SECOND, 75 * SECOND).unwrap();
    let range = |from: i64, to: i64| Some(Range { from: from * SECOND, to: to * SECOND - 1 });
    assert_eq!((due.range, due.through / SECOND, due.missed, due.left_out), (range(20, 70), 70, 4, 0));
    let due = schedule.due(0, 1_000_000 * SECOND).unwrap();
    assert_eq!((due.range, due.through / SECOND), (range(900_000, 910_010), 910_010));
    assert_eq!((due.missed, due.left_out / SECOND), (1000, 900_000));
    let due = schedule.due(due.through, 1_000_000 * SECOND).unwrap();
    assert_eq!((due.range, due.left_out), (range(910_010, 920_020), 0));
    // A clock that was put back is waited for.
    assert_eq!(schedule.due(100 * SECOND, 95 * SECOND), None);
}

#[test]
fn a_run_computes_its_own_times_whatever_the_condition_says() {
    let text = "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT count(user) INTO o FROM cpu WHERE time > now() - 5s AND host = 'a' GROUP BY time(20s) END";
    let schedule = Schedule::of(&kept(text)).unwrap();
    let model = machines();
    let env = Env { source: &model, database: "", now: 1000 * SECOND, may_see: &|_| true };
    let statement = schedule.statement(Range { from: 0, to: 40 * SECOND - 1 });
    let mut written = Vec::new();
    let count = insert(&env, &statement, &mut |rows| {
        for (_, pending) in rows.pending() {
            assert_eq!(
                (pending.row.database.as_str(), pending.row.metric.as_str(), pending.field),
                ("db", "o", "count")
            );
            written.extend(pending.points.iter().map(|(time, value)| (time / SECOND, value.to_value())));
        }
        rows.clear();
        Ok(())
    });
    assert_eq!(count, Ok(2));
    assert_eq!(written, [(0, crate::Value::Integer(2)), (20, crate::Value::Integer(1))]);
}

/// Expressions with as many parentheses as there may be, and as few.
fn exprs() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "-n",
        "1",
        "3",
        "-2.5",
        "0.1234567",
        "n::float",
        "\"user\"::field",
        "-(n)",
        "1e3",
        "abs(-user)",
        "7",
    ]);
    let operator = prop::sample::select(vec!["+", "-", "*", "/", "%", "&", "|", "^"]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 2, move |inner| {
        prop_oneof![
            (inner.clone(), operator.clone(), inner.clone())
                .prop_map(|(left, sign, right)| format!("{left} {sign} {right}")),
            (inner.clone(), operator.clone(), inner.clone())
                .prop_map(|(left, sign, right)| format!("({left}) {sign} ({right})")),
            inner.prop_map(|inner| format!("-({inner})")),
        ]
    })
}

/// What a run of a query would write.
fn written(text: &str) -> std::result::Result<Vec<String>, String> {
    let model = machines();
    let env = Env { source: &model, database: "db", now: 1000 * SECOND, may_see: &|_| true };
    let schedule =
        Schedule::of(&ContinuousQuery { text: text.to_owned(), ..kept(text) }).map_err(|error| error.to_string())?;
    let statement = schedule.statement(Range { from: 0, to: 60 * SECOND - 1 });
    let mut all = Vec::new();
    let done = insert(&env, &statement, &mut |rows| {
        all.extend(rows.pending().map(|(_, pending)| format!("{pending:?}")));
        rows.clear();
        Ok(())
    });
    done.map(|_| all).map_err(|error| error.to_string())
}

proptest! {
    #[test]
    fn what_is_kept_means_what_was_said(column in exprs(), condition in exprs()) {
        // Of functions instead of fields, which cannot stand beside functions.
        let column = column.replace("\"user\"::field", "min(user)").replace("n::float", "max(n::float)");
        let column = column.replace("abs(-user)", "abs(min(user))").replace("-(n)", "-(sum(n))").replace("-n", "-count(n)");
        let said = format!(
            "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT max(user) - ({column}) AS a INTO o FROM cpu WHERE {condition} > 1 GROUP BY time(10s) END"
        );
        let kept_text = kept(&said).text;
        prop_assert_eq!(&kept(&kept_text).text, &kept_text);
        prop_assert_eq!(written(&kept_text), written(&said), "{}", said);
    }

    #[test]
    fn whatever_is_selected_is_kept_as_it_was_meant(text in selections()) {
        let said = format!("CREATE CONTINUOUS QUERY q ON db BEGIN {} END", text.replacen(" FROM ", " INTO o FROM ", 1));
        if parse(&said, &Parameters::new()).is_ok() {
            let kept_text = kept(&said).text;
            prop_assert_eq!(&kept(&kept_text).text, &kept_text);
            prop_assert_eq!(written(&kept_text), written(&said), "{}", said);
        }
    }
}
