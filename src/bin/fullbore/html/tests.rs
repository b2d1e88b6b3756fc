use super::scale::{Scale, short};
use super::*;

#[test]
fn every_text_is_escaped() {
    let nasty = "<script>\"&'\u{1}";
    let line = Line { name: nasty.into(), points: vec![(1.0, 2.0), (2.0, 3.0)] };
    let axis = || Axis { label: nasty.into(), ..Axis::default() };
    let lines = Lines {
        x: axis(),
        y: axis(),
        lines: vec![line.clone(), line],
        dots: true,
        steps: false,
        rule: Some((3.0, nasty.into())),
    };
    let heat = Heat { label: nasty.into(), rows: vec![Row { name: nasty.into(), counts: vec![0, 1, 3] }] };
    let table = || Table { head: vec![nasty.into()], rows: vec![vec![nasty.into(), nasty.into()]] };
    let figure =
        |chart| Figure { id: "a", title: nasty.into(), caption: nasty.into(), chart, table: table() };
    let page = Page {
        title: nasty.into(),
        facts: vec![(nasty.into(), nasty.into())],
        figures: vec![figure(Chart::Lines(lines)), figure(Chart::Heat(heat))],
    };
    let text = page.text();
    assert!(!text.contains("<script") && !text.contains('\u{1}'), "{text}");
    let shown = text.matches("&lt;script&gt;&quot;&amp;&#39;\u{fffd}").count();
    assert!(shown >= 20, "{shown} of the texts are there");
    for outside in ["http", "src=", "url(", "@import"] {
        assert!(!text.contains(outside), "{outside}: a page of its own needs nothing from elsewhere");
    }
}

#[test]
fn axes_name_round_values_within_them() {
    let axis = |values: &[f64], log| Scale::over(values.iter().copied(), log);
    assert_eq!(axis(&[7.3], false).rounded().ticks(), [0.0, 2.0, 4.0, 6.0, 8.0]);
    assert_eq!(axis(&[0.0], false).rounded().place(0.0), 0.0);
    assert_eq!(axis(&[8.0], false).rounded().place(8.0), 1.0);
    assert_eq!(axis(&[1.0, 100.0], true).place(10.0), 0.5);
    assert_eq!(axis(&[0.9, 110.0], true).ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    assert_eq!(axis(&[4.0], true).place(4.0), 0.5);
    for scale in [axis(&[], false), axis(&[f64::NAN], true), axis(&[0.0], true)] {
        assert!(scale.place(1.0).is_finite() && scale.ticks().len() < 20);
    }
    assert_eq!([0.0, 0.25, 1.5, 12.0, 1234.5].map(short), ["0", "0.25", "1.5", "12", "1234"]);
}
