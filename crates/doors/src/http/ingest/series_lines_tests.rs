//! Lines of JSON over HTTP: what they mean, what is said about those that are wrong, and that exports come back.

use crate::http::tests_client::{Answer, Door, open_wide};

fn post(door: &Door, path: &str, body: &str) -> Answer {
    door.send(&format!("POST {path}"), &[], Some(body.as_bytes()))
}

fn export(door: &Door, db: &str) -> String {
    let answer = door.get(&format!("/api/v1/export?db={db}&match[]=%7B__name__!=%22%22%7D"));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.text().to_owned()
}

#[test]
fn what_was_exported_can_be_imported() {
    let door = open_wide();
    let lines = concat!(
        r#"{"metric":{"__name__":"down","job":"a\"é,}"},"values":[1.5,null,"Infinity","-Infinity"],"timestamps":[-5,6,7,8]}"#,
        "\n",
        r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[1356998400123]}"#,
        "\n"
    );
    let answer = post(&door, "/api/v1/import?db=a", lines);
    assert_eq!((answer.status, answer.header("x-holdfast-skipped")), (204, None), "{answer:?}");
    assert_eq!(export(&door, "a"), lines);
    // Blanks, other keys, their order, numbers as texts and labels that are empty change nothing; labels may be added.
    let other = " { \"x\" : [ { } ] , \"timestamps\" : [ 1 , 2 ] , \"values\" : [ \"1.5\" , 2e0 ] , \"metric\" : {\"__name__\":\"m\",\"job\":\"a\",\"e\":\"\"} } \r\n\n";
    assert_eq!(post(&door, "/api/v1/import?db=b&extra_label=job=x", other).status, 204);
    let wanted = r#"{"metric":{"__name__":"m","job":"x"},"values":[1.5,2],"timestamps":[1,2]}"#;
    assert_eq!(export(&door, "b"), format!("{wanted}\n"));
}

#[test]
fn a_line_of_more_points_than_are_written_at_once_is_stored_whole() {
    let door = open_wide();
    let count = 6_000;
    let values = vec!["1"; count].join(",");
    let times: Vec<String> = (0..count).map(|at| at.to_string()).collect();
    let line =
        format!("{{\"metric\":{{\"__name__\":\"m\"}},\"values\":[{values}],\"timestamps\":[{}]}}\n", times.join(","));
    assert_eq!(post(&door, "/api/v1/import?db=c", &line).status, 204);
    assert_eq!(export(&door, "c"), line);
}

#[test]
fn a_line_that_is_wrong_is_told_and_keeps_no_other_out() {
    let door = open_wide();
    let good = r#"{"metric":{"__name__":"m"},"values":[1],"timestamps":[1]}"#;
    let deep = "[".repeat(100);
    for (bad, wanted) in [
        ("nothing", "it is no JSON: at byte 0 there should be {"),
        (r#"{"metric":{"__name__":"n"},"values":[1],"timestamps":[1]"#, "at byte 56 there should be , or }"),
        (r#"{"metric":{"__name__":"n"},"values":[1],"timestamps":[1]} x"#, "there should be the end"),
        (&format!("{{\"metric\":{deep}"), "values that are not so deep in each other"),
        (r#"{"values":[1],"timestamps":[1]}"#, "there is no metric"),
        (r#"{"metric":{"__name__":"n"},"timestamps":[1]}"#, "there are no values"),
        (r#"{"metric":{"__name__":"n"},"values":[1],"timestamps":1}"#, "there are no timestamps"),
        (r#"{"metric":{"__name__":"n"},"values":[1,2],"timestamps":[1]}"#, "there are 2 values and 1 timestamps"),
        (r#"{"metric":{"__name__":"n"},"values":[1,"x"],"timestamps":[1,2]}"#, "invalid value 'x'"),
        (r#"{"metric":{"__name__":"n"},"values":[1,[2]],"timestamps":[1,2]}"#, "invalid value '[2]'"),
        (r#"{"metric":{"__name__":"n"},"values":[1],"timestamps":[1.5]}"#, "invalid timestamp '1.5'"),
        (r#"{"metric":{"job":"n"},"values":[1],"timestamps":[1]}"#, "the metric has no __name__"),
        (r#"{"metric":{"__name__":"n","a":1},"values":[1],"timestamps":[1]}"#, "the label a has no text as its value"),
        (r#"{"metric":"n","values":[1],"timestamps":[1]}"#, "the metric is no object of texts"),
    ] {
        let answer = post(&door, "/api/v1/import?db=d", &format!("{bad}\n{good}\n"));
        let said = answer.header("x-holdfast-skipped").unwrap_or_default();
        assert!(answer.status == 204 && said.starts_with("1; line 1: ") && said.contains(wanted), "{bad}: {answer:?}");
        assert_eq!(export(&door, "d"), format!("{good}\n"), "{bad}");
        assert_eq!(post(&door, "/api/v1/import?db=d", bad).status, 400, "nothing was stored: {bad}");
    }
}
