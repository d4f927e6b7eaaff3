//! Examples: each a question as clients send it, and the answer to the byte.

use serde_json::{Value as Json, json};

use super::{NOW, get, made, parameters, post, refusal};
use crate::model::{Model, key};
use crate::opentsdb::{LastQuery, Lookup, Parameters, Query, Suggest};
use crate::value::Value;

/// The two series of OpenTSDB's documentation of aggregation: their points do not line up.
fn model() -> Model {
    let mut model = Model::default();
    let whole = |model: &mut Model, tags: &str, points: &[(i64, i64)]| {
        for (seconds, value) in points {
            model.write(&key("default", "sys.cpu", tags, "value"), seconds * 1_000_000_000, Value::Integer(*value));
        }
    };
    whole(&mut model, "dc=lga,host=web01", &[(100, 5), (120, 10), (140, 20), (160, 30)]);
    whole(&mut model, "dc=lga,host=web02", &[(110, 10), (130, 20), (150, 15)]);
    model.put("sys.mem", "dc=lga,host=web01", &[(100, 1.5), (160, 2.5), (220, 0.1)]);
    model.put("sys.mem", "dc=dal,host=Web03", &[(100, 1e300), (160, f64::NAN), (220, 1e-7)]);
    model.write(&key("default", "sys.mem", "dc=dal,host=web04", "free"), 100_000_000_000, Value::Unsigned(u64::MAX));
    model.write(&key("default", "sys.mem", "dc=dal,host=web04", "up"), 100_000_000_000, Value::Boolean(true));
    model.write(&key("other", "sys.disk", "host=web09", "value"), 100_000_000_000, Value::Integer(7));
    model
}

/// Questions and answers: both `start=100&end=160` and the head of each group are left out where they say nothing.
#[test]
fn series_that_do_not_line_up_are_on_the_line_between_their_points() {
    for (aggregator, dps) in [
        ("sum", r#"{"100":5,"110":17,"120":25,"130":35,"140":38,"150":40,"160":30}"#),
        ("zimsum", r#"{"100":5,"110":10,"120":10,"130":20,"140":20,"150":15,"160":30}"#),
        ("avg", r#"{"100":5,"110":8,"120":12,"130":17,"140":19,"150":20,"160":30}"#),
        ("min", r#"{"100":5,"110":7,"120":10,"130":15,"140":18,"150":15,"160":30}"#),
        ("mimmin", r#"{"100":5,"110":10,"120":10,"130":20,"140":20,"150":15,"160":30}"#),
        ("max", r#"{"100":5,"110":10,"120":15,"130":20,"140":20,"150":25,"160":30}"#),
        ("mimmax", r#"{"100":5,"110":10,"120":10,"130":20,"140":20,"150":15,"160":30}"#),
        ("count", r#"{"100":1,"110":2,"120":2,"130":2,"140":2,"150":2,"160":1}"#),
        ("first", r#"{"100":5,"110":0,"120":10,"130":0,"140":20,"150":0,"160":30}"#),
        ("last", r#"{"100":5,"110":10,"120":0,"130":20,"140":0,"150":15,"160":30}"#),
        ("diff", r#"{"100":0,"110":3,"120":5,"130":5,"140":-2,"150":-10,"160":0}"#),
        ("mult", r#"{"100":5,"110":70,"120":150,"130":300,"140":360,"150":375,"160":30}"#),
        ("dev", r#"{"100":0,"110":1,"120":2,"130":2,"140":1,"150":5,"160":0}"#),
        ("median", r#"{"100":5,"110":10,"120":15,"130":20,"140":20,"150":25,"160":30}"#),
    ] {
        let head = r#"[{"metric":"sys.cpu","tags":{"dc":"lga"},"aggregateTags":["host"],"dps":"#;
        let found = get(&model(), &format!("start=100&end=160&m={aggregator}:sys.cpu"));
        assert_eq!(found, format!("{head}{dps}}}]"), "{aggregator}");
    }
}

#[test]
fn questions_have_these_answers() {
    const WEB01: &str = r#"{"metric":"sys.cpu","tags":{"dc":"lga","host":"web01"},"aggregateTags":[],"dps":"#;
    const WEB02: &str = r#"{"metric":"sys.cpu","tags":{"dc":"lga","host":"web02"},"aggregateTags":[],"dps":"#;
    const MEM01: &str = r#"{"metric":"sys.mem","tags":{"dc":"lga","host":"web01"},"aggregateTags":[],"dps":"#;
    for (asked, wanted) in [
        // Each series for itself, in the order of their tags.
        ("start=100&end=120&m=none:sys.cpu", format!("[{WEB01}{{\"100\":5,\"120\":10}}}},{WEB02}{{\"110\":10}}}}]")),
        // Apart by a tag.
        (
            "start=100&end=120&m=sum:sys.cpu{host=*}",
            format!("[{WEB01}{{\"100\":5,\"120\":10}}}},{WEB02}{{\"110\":10}}}}]"),
        ),
        ("start=100&end=120&m=sum:sys.cpu{host=web02|web07}", format!("[{WEB02}{{\"110\":10}}}}]")),
        ("start=100&end=120&m=sum:sys.cpu{}{host=web02}", format!("[{WEB02}{{\"110\":10}}}}]")),
        // A precise point, and a range without any.
        ("start=110&end=110&m=sum:sys.cpu{host=web02}", format!("[{WEB02}{{\"110\":10}}}}]")),
        ("start=111&end=112&m=sum:sys.cpu{host=web02}", "[]".to_owned()),
        // Milliseconds, arrays.
        ("start=100&end=120&ms=true&m=sum:sys.cpu{host=web01}", format!("[{WEB01}{{\"100000\":5,\"120000\":10}}}}]")),
        ("start=100000000000&end=120000000000000&m=sum:sys.cpu", "[]".to_owned()),
        ("start=100&end=120&arrays&m=sum:sys.cpu{host=web01}", format!("[{WEB01}[[100,5],[120,10]]}}]")),
        // Downsampling makes doubles, and the first interval is there though the range begins in its middle.
        ("start=120&end=170&m=sum:1m-avg:sys.cpu{host=web01}", format!("[{WEB01}{{\"120\":20.0}}}}]")),
        ("start=130&end=170&m=sum:1m-sum:sys.cpu{host=web01}", format!("[{WEB01}{{\"120\":50.0}}}}]")),
        ("start=99&end=170&m=none:0all-count:sys.cpu{host=web01}", format!("[{WEB01}{{\"99\":4.0}}}}]")),
        ("start=99&end=160&m=none:0all-last:sys.cpu{host=web01}", format!("[{WEB01}{{\"99\":30.0}}}}]")),
        (
            "start=60&end=245&m=sum:1m-sum-none:sys.mem{dc=lga}",
            format!("[{MEM01}{{\"60\":1.5,\"120\":2.5,\"180\":0.1}}}}]"),
        ),
        (
            "start=100&end=130&m=sum:10s-sum-zero:sys.cpu{host=web01}",
            format!("[{WEB01}{{\"100\":5.0,\"110\":0.0,\"120\":10.0,\"130\":0.0}}}}]"),
        ),
        (
            "start=100&end=130&m=sum:10s-sum-nan:sys.cpu{host=web01}",
            format!("[{WEB01}{{\"100\":5.0,\"110\":\"NaN\",\"120\":10.0,\"130\":\"NaN\"}}}}]"),
        ),
        (
            "start=100&end=130&m=sum:10s-sum-null:sys.cpu{host=web01}",
            format!("[{WEB01}{{\"100\":5.0,\"110\":null,\"120\":10.0,\"130\":null}}}}]"),
        ),
        // Rates.
        (
            "start=100&end=160&m=sum:rate:sys.cpu{host=web01}",
            format!("[{WEB01}{{\"120\":0.25,\"140\":0.5,\"160\":0.5}}}}]"),
        ),
        ("start=130&end=150&m=sum:rate:sys.cpu{host=web02}", format!("[{WEB02}{{\"130\":0.5,\"150\":-0.25}}}}]")),
        (
            "start=100&end=150&m=sum:rate{counter,100}:sys.cpu{host=web02}",
            format!("[{WEB02}{{\"130\":0.5,\"150\":4.75}}}}]"),
        ),
        (
            "start=100&end=150&m=sum:rate{counter,100,1}:sys.cpu{host=web02}",
            format!("[{WEB02}{{\"130\":0.5,\"150\":0.0}}}}]"),
        ),
        (
            "start=100&end=150&m=sum:rate{counter,,,dropcounter}:sys.cpu{host=web02}",
            format!("[{WEB02}{{\"130\":0.5}}}}]"),
        ),
        ("start=100&end=150&m=sum:rate{dropcounter}:sys.cpu{host=web02}", format!("[{WEB02}{{\"130\":0.5}}}}]")),
        // Several questions, and one with only the tags that are named.
        (
            "start=100&end=110&m=none:sys.cpu{host=web01}&m=none:sys.cpu{host=web02}",
            format!("[{WEB01}{{\"100\":5}}}},{WEB02}{{\"110\":10}}}}]"),
        ),
        ("start=100&end=110&m=sum:explicit_tags:sys.cpu{host=web01}", "[]".to_owned()),
        ("start=100&end=110&m=sum:explicit_tags:sys.cpu{host=web01,dc=*}", format!("[{WEB01}{{\"100\":5}}}}]")),
    ] {
        assert_eq!(get(&model(), asked), wanted, "{asked}");
    }
}

#[test]
fn numbers_are_printed_as_they_were_written() {
    let found = get(&model(), "start=100&end=300&m=none:sys.mem{dc=dal}");
    let wanted = concat!(
        r#"[{"metric":"sys.mem","tags":{"dc":"dal","host":"Web03"},"aggregateTags":[],"#,
        r#""dps":{"100":1e+300,"160":"NaN","220":1e-7}},"#,
        r#"{"metric":"sys.mem","tags":{"_field":"free","dc":"dal","host":"web04"},"aggregateTags":[],"#,
        r#""dps":{"100":18446744073709551615}}]"#,
    );
    assert_eq!(found.replace("1e300", "1e+300"), wanted);
}

#[test]
fn filters_let_through_what_they_say() {
    for (filters, hosts) in [
        ("{host=literal_or(web01|Web03)}", "Web03 web01"),
        ("{host=iliteral_or(WEB01|web03)}", "Web03 web01"),
        ("{}{host=not_literal_or(web01)}", "Web03 web04"),
        ("{}{host=not_iliteral_or(web03|web04)}", "web01"),
        ("{host=wildcard(web*)}", "web01 web04"),
        ("{host=iwildcard(WEB*)}", "Web03 web01 web04"),
        ("{host=web*}", "Web03 web01 web04"),
        ("{host=wildcard(*0*)}", "Web03 web01 web04"),
        ("{host=*}", "Web03 web01 web04"),
        ("{host=regexp(eb0[34]$)}", "Web03 web04"),
        ("{host=regexp((?i)^WEB)}", "Web03 web01 web04"),
        ("{}{dc=not_key()}", ""),
        ("{}{_field=not_key()}", "Web03 web01"),
        ("{}{_field=free}", "web04"),
        ("{dc=dal}{host=not_literal_or(web04)}", "Web03"),
        ("{host=web01,dc=dal}", ""),
    ] {
        let found = get(&model(), &format!("start=1&end=300&m=none:sys.mem{filters}"));
        let found: Json = serde_json::from_str(&found).unwrap();
        let mut found: Vec<&str> =
            found.as_array().unwrap().iter().map(|group| group["tags"]["host"].as_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found.join(" "), hosts, "{filters}");
    }
}

#[test]
fn what_cannot_be_asked_is_refused_with_what_would_be_right() {
    for (asked, wanted) in [
        ("m=sum:sys.cpu", "Missing start time"),
        ("start=1h-ago", "Missing queries"),
        ("start=1h-ago&m=sum:no.such", "No such name for 'metrics': 'no.such'"),
        ("start=1h-ago&m=sum:sys.disk", "No such name for 'metrics': 'sys.disk'"),
        ("start=1h-ago&m=some:sys.cpu", "No such aggregator: some"),
        ("start=1h-ago&m=sys.cpu", "write aggregator:metric"),
        ("start=1h-ago&m=sum:", "its name is empty"),
        ("start=1h-ago&m=sum:1m-none:sys.cpu", "cannot use the NONE aggregator"),
        ("start=1h-ago&m=sum:1m:sys.cpu", "there is no function"),
        ("start=1h-ago&m=sum:1x-avg:sys.cpu", "Invalid duration: 1x"),
        ("start=1h-ago&m=sum:0m-avg:sys.cpu", "Invalid duration: 0m"),
        ("start=1h-ago&m=sum:1m-avg-some:sys.cpu", "the fill policies are none, nan, null and zero"),
        ("start=1h-ago&m=sum:rate{gauge}:sys.cpu", "write rate or rate{counter,max,reset}"),
        ("start=1h-ago&m=sum:sys.cpu{host=regexp(a(b)}", "Invalid metric"),
        ("start=1h-ago&m=sum:sys.cpu{host=regexp(*)}", "Invalid regular expression *"),
        ("start=1h-ago&m=sum:sys.cpu{host}", "write tag=value"),
        ("start=1h-ago&m=sum:sys.cpu{host=}", "A filter must not be empty"),
        ("start=200&end=100&m=sum:sys.cpu", "must not be before the start time"),
        ("start=-1&m=sum:sys.cpu", "Invalid time: -1"),
        ("start=2012/13/01&m=sum:sys.cpu", "Invalid date: 2012/13/01"),
        ("start=2012/12/01&tz=Nowhere/Else&m=sum:sys.cpu", "Invalid timezone name: Nowhere/Else"),
        ("start=1&m=sum:1ms-sum-zero:sys.cpu", "use a longer interval"),
        ("start=1&tsuid=sum:12", "Invalid TSUID: 12"),
    ] {
        let found = refusal(&model(), asked);
        assert!(found.contains(wanted), "{asked}: {found}");
    }
    for body in ["", "[]", "{", "{\"start\":1}", r#"{"start":1,"queries":[{}]}"#, r#"{"start":1,"queries":[1]}"#] {
        assert!(Query::from_json(body.as_bytes(), &Parameters::default(), NOW).is_err(), "{body}");
    }
}

/// Points of a year's first days, hourly, in New York, over the end of its summer time.
#[test]
fn intervals_of_the_calendar_begin_where_days_begin_in_the_zone() {
    let mut model = Model::default();
    // 2015-11-01 00:00 in New York is 04:00 UTC; that day has 25 hours.
    let midnight = 1_446_350_400;
    let points: Vec<(i64, f64)> = (0..49).map(|hour| (midnight + hour * 3_600, 1.0)).collect();
    model.put("m", "a=b", &points);
    let range = format!("start={midnight}&end={}", midnight + 48 * 3_600);
    for (downsample, zone, dps) in [
        ("1dc-count", "America/New_York", json!({ "1446350400": 25.0, "1446440400": 24.0 })),
        ("24hc-count", "America/New_York", json!({ "1446350400": 25.0, "1446440400": 24.0 })),
        ("1dc-count", "UTC", json!({ "1446336000": 20.0, "1446422400": 24.0, "1446508800": 5.0 })),
        ("1d-count", "America/New_York", json!({ "1446336000": 20.0, "1446422400": 24.0, "1446508800": 5.0 })),
        ("1wc-count", "America/New_York", json!({ "1446350400": 49.0 })),
        ("1nc-count", "America/New_York", json!({ "1446350400": 49.0 })),
        ("1yc-count", "America/New_York", json!({ "1420088400": 49.0 })),
        (
            "12hc-count",
            "America/New_York",
            json!({ "1446350400": 12.0, "1446393600": 12.0, "1446436800": 1.0, "1446440400": 12.0, "1446483600": 12.0 }),
        ),
    ] {
        let found = get(&model, &format!("{range}&tz={zone}&m=sum:{downsample}:m"));
        let found: Json = serde_json::from_str(&found).unwrap();
        assert_eq!(found[0]["dps"], dps, "{downsample} {zone}");
    }
    // As Grafana and others ask for it: a switch and a zone for the whole request.
    let body = json!({
        "start": midnight, "end": midnight + 48 * 3_600, "timezone": "America/New_York", "useCalendar": true,
        "queries": [{ "aggregator": "sum", "metric": "m", "downsample": "1d-count" }],
    });
    assert_eq!(post(&model, &body).unwrap()[0]["dps"], json!({ "1446350400": 25.0, "1446440400": 24.0 }));
}

#[test]
fn bodies_as_iot_benchmark_sends_them_are_answered() {
    let mut model = Model::default();
    for (device, sensor) in [("d_0", "s_0"), ("d_0", "s_1"), ("d_1", "s_0")] {
        let key = key("default", "g_0", &format!("device={device},sensor={sensor}"), "value");
        for step in 0..50 {
            model.write(&key, (1_535_558_400_000 + step * 5_000) * 1_000_000, Value::Float(step as f64 + 0.25));
        }
    }
    let body = |aggregator: &str, downsample: &str| {
        json!({
            "msResolution": true, "start": 1_535_558_399_999_i64, "end": 1_535_558_650_001_i64,
            "queries": [{
                "aggregator": aggregator, "metric": "g_0", "tags": { "sensor": "s_0", "device": "d_0|d_1" },
                "downsample": downsample,
            }],
        })
    };
    let found = post(&model, &body("none", "0all-count")).unwrap();
    assert_eq!(found.as_array().unwrap().len(), 2);
    assert_eq!(found[0]["dps"], json!({ "1535558399999": 50.0 }));
    assert_eq!(found[1]["tags"], json!({ "device": "d_1", "sensor": "s_0" }));
    let found = post(&model, &body("none", "0all-last")).unwrap();
    assert_eq!(found[1]["dps"], json!({ "1535558399999": 49.25 }));
    let found = post(&model, &body("count", "20000ms-count")).unwrap();
    assert_eq!((found.as_array().unwrap().len(), found[0]["dps"].as_object().unwrap().len()), (2, 13));
}

#[test]
fn bodies_as_grafana_sends_them_are_answered() {
    let body = json!({
        "start": 100_000_000_000_i64, "end": 160_000_000_000_i64, "msResolution": false, "globalAnnotations": true,
        "showQuery": true,
        "queries": [{
            "metric": "sys.cpu", "aggregator": "sum", "downsample": "20s-avg-none", "explicitTags": true, "rate": false,
            "filters": [
                { "type": "wildcard", "tagk": "host", "filter": "web*", "groupBy": true },
                { "type": "literal_or", "tagk": "dc", "filter": "lga", "groupBy": false },
            ],
        }],
    });
    let mut seconds = body.clone();
    seconds["start"] = json!("100");
    seconds["end"] = json!(160);
    let found = post(&model(), &seconds).unwrap();
    assert_eq!(found.as_array().unwrap().len(), 2);
    let mut query = body["queries"][0].clone();
    query["index"] = json!(0);
    assert_eq!(found[0]["query"], query);
    assert_eq!(found[1]["dps"], json!({ "100": 10.0, "120": 20.0, "140": 15.0 }));
    let switches = json!({
        "start": 100, "end": 160, "showTSUIDs": true, "showSummary": "true", "showStats": true, "arrays": true,
        "queries": [{ "metric": "sys.cpu", "aggregator": "none" }],
    });
    let found = post(&model(), &switches).unwrap();
    assert_eq!(found.as_array().unwrap().len(), 3);
    assert_eq!(found[0]["tsuids"], json!(["000000000001"]));
    assert_eq!(found[0]["stats"]["emittedDPs"], 4);
    assert_eq!(found[2]["statsSummary"]["emittedDPs"], 7);
    let by_id = get(&model(), "start=100&end=100&m=none:sys.cpu&tsuid=none:000000000001");
    let (first, second) = by_id[1..by_id.len() - 1].split_at((by_id.len() - 3) / 2);
    assert_eq!(first, &second[1..]);
}

#[test]
fn points_with_one_printed_time_are_one_in_an_object_and_all_in_arrays() {
    let mut model = Model::default();
    for (at, value) in [(1_000, 1), (1_001, 2), (1_999, 3), (2_000, 4)] {
        model.write(&key("default", "m", "", "value"), at * 1_000_000, Value::Integer(value));
    }
    assert!(get(&model, "start=1&end=2&m=sum:m").ends_with(r#""dps":{"1":3,"2":4}}]"#));
    assert!(get(&model, "start=1&end=2&arrays&m=sum:m").ends_with(r#""dps":[[1,1],[1,2],[1,3],[2,4]]}]"#));
}

#[test]
fn long_answers_come_in_pieces() {
    let mut model = Model::default();
    let points: Vec<(i64, f64)> = (0..200_000).map(|second| (second, 0.5)).collect();
    model.put("m", "a=b", &points);
    let whole = get(&model, "start=0&end=200000&m=none:m&m=sum:1s-sum:m");
    let found: Json = serde_json::from_str(&whole).unwrap();
    assert_eq!(found[0]["dps"], found[1]["dps"]);
    assert_eq!(found[0]["dps"].as_object().unwrap().len(), 200_000);
    let query = Query::from_parameters(&parameters("start=0&end=200000&m=none:m"), NOW).unwrap();
    let mut answer = super::Answer::begin(&model, "default", query).unwrap();
    // Whoever goes on until there is no piece has the whole, whatever is done with each: nothing has to be emptied.
    let mut pieces = Vec::new();
    while let Some(piece) = answer.next(&model).unwrap() {
        assert!(!piece.is_empty() && piece.len() < 3_000_000, "{}", piece.len());
        assert_eq!(answer.is_over(), piece.ends_with(b"]"));
        pieces.push(piece);
    }
    assert!(pieces.len() > 1 && answer.next(&model).unwrap().is_none());
    let found: Json = serde_json::from_slice(&pieces.concat()).unwrap();
    assert_eq!(found[0]["dps"].as_object().unwrap().len(), 200_000);
}

#[test]
fn what_is_deleted_is_what_was_asked_for() {
    let model = model();
    let deletions = |text: &str| {
        let query = Query::from_parameters(&parameters(text), NOW).unwrap().and_delete();
        let answer = super::Answer::begin(&model, "default", query).unwrap();
        let selects = answer.deletions().iter().map(|(select, _)| select.clone()).collect::<Vec<_>>();
        let hit = |select: &crate::Select| crate::Source::series(&model, select).unwrap();
        selects
            .iter()
            .flat_map(hit)
            .map(|series| format!("{} {}", series.key.tag("host"), series.key.field))
            .collect::<Vec<_>>()
    };
    assert_eq!(deletions("start=1&m=sum:sys.cpu{host=web01}"), ["web01 value"]);
    assert_eq!(deletions("start=1&m=sum:sys.mem{_field=free}"), ["web04 free"]);
    assert_eq!(deletions("start=1&m=sum:explicit_tags:sys.mem{host=*}"), [""; 0]);
    assert_eq!(deletions("start=1&tsuid=sum:000000000002"), ["web02 value"]);
}

#[test]
fn the_last_point_of_each_series_is_told_whatever_its_age() {
    let last = |query: LastQuery| {
        let mut out = Vec::new();
        query.answer(&model(), "default", &mut out).map(|()| String::from_utf8(out).unwrap())
    };
    let from = |text: &str| LastQuery::from_parameters(&parameters(text)).unwrap();
    assert_eq!(
        last(from("timeseries=sys.cpu{host=web02}&resolve&back_scan=24")).unwrap(),
        r#"[{"metric":"sys.cpu","tags":{"dc":"lga","host":"web02"},"timestamp":150000,"value":"15","tsuid":"000000000002"}]"#
    );
    assert_eq!(last(from("tsuids=000000000001,000000000002")).unwrap().matches("timestamp").count(), 2);
    assert_eq!(last(from("timeseries=sys.mem{dc=dal}")).unwrap().matches("timestamp").count(), 2);
    assert!(last(from("timeseries=sys.none")).is_err() && LastQuery::from_parameters(&parameters("")).is_err());
    let body = br#"{"queries":[{"metric":"sys.mem","tags":{"host":"web01"}}],"resolveNames":true,"backScan":24}"#;
    let found = last(LastQuery::from_json(body, &Parameters::default()).unwrap()).unwrap();
    assert!(found.contains(r#""timestamp":220000,"value":"0.1""#), "{found}");
}

#[test]
fn names_and_series_are_found() {
    let suggest = |text: &str| {
        let mut out = Vec::new();
        Suggest::from_parameters(&parameters(text)).unwrap().answer(&model(), "default", &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(suggest("type=metrics&q=sys.&max=10"), r#"["sys.cpu","sys.mem"]"#);
    assert_eq!(suggest("type=metrics&max=1"), r#"["sys.cpu"]"#);
    assert_eq!(suggest("type=tagk&q=h"), r#"["host"]"#);
    assert_eq!(suggest("type=tagv&q=web0"), r#"["web01","web02","web04"]"#);
    assert!(Suggest::from_parameters(&parameters("type=other")).is_err());
    let find = |lookup: Lookup| {
        let mut out = Vec::new();
        lookup.find(&model(), "default").unwrap().write(3, &mut out);
        serde_json::from_slice::<Json>(&out).unwrap()
    };
    let from = |text: &str| find(Lookup::from_parameters(&parameters(text)).unwrap());
    let found = from("m=sys.cpu{host=*}&limit=1");
    assert_eq!((&found["type"], &found["totalResults"], &found["time"]), (&json!("LOOKUP"), &json!(2), &json!(3)));
    assert_eq!(found["results"].as_array().unwrap().len(), 1);
    assert_eq!(found["results"][0]["tags"], json!({ "dc": "lga", "host": "web01" }));
    for (text, total) in [("m={host=web01}", 2), ("m=*{*=dal}", 3), ("m={dc=*}", 6), ("m=sys.mem{_field=up}", 1)] {
        assert_eq!(from(text)["totalResults"], total, "{text}");
    }
    let body = br#"{"metric":"sys.cpu","tags":[{"key":"host","value":"*"}],"limit":0}"#;
    assert_eq!(find(Lookup::from_json(body).unwrap())["results"].as_array().unwrap().len(), 2);
}

#[test]
fn another_database_has_series_of_its_own() {
    let query = || Query::from_parameters(&parameters("start=1&end=200&m=sum:sys.disk"), NOW).unwrap();
    assert!(made(&model(), query()).is_err());
    let mut answer = super::Answer::begin(&model(), "other", query()).unwrap();
    let out = answer.whole(&model()).unwrap();
    assert!(String::from_utf8(out).unwrap().contains(r#""dps":{"100":7}"#));
}
