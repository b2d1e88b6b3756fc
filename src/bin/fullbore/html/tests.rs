use super::scale::{Scale, short};
use super::*;

#[test]
fn every_text_is_escaped() {
    let nasty = "<script>\"&'\u{1}";
    let line = Line { name: nasty.into(), points: vec![(1.0, 2.0), (2.0, 3.0)] };
    let axis = || Axis { label: nasty.into(), ticks: vec![(1.0, nasty.into())], ..Axis::default() };
    let lines = Lines {
        x: axis(),
        y: axis(),
        lines: vec![line.clone(), line],
        dots: true,
        steps: false,
        rules: vec![Rule { name: nasty.into(), points: vec![(1.0, 3.0)], across: true }],
    };
    let heat = Heat { label: nasty.into(), rows: vec![Row { name: nasty.into(), counts: vec![0, 1, 3] }] };
    let table = || Table { head: vec![nasty.into()], rows: vec![vec![nasty.into(), nasty.into()]] };
    let figure =
        |chart| Figure { id: "a", title: nasty.into(), caption: nasty.into(), chart, table: table() };
    let page = Page {
        title: nasty.into(),
        facts: vec![(nasty.into(), nasty.into())],
        figures: vec![figure(Chart::Lines(lines)), figure(Chart::Heat(heat))],
        report: nasty.into(),
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
    assert_eq!([0.0005, 0.001, 0.0015].map(short), ["0.0005", "0.001", "0.0015"]);
}

#[test]
fn rules_go_across_or_from_point_to_point() {
    let rule = |points: &[(f64, f64)], across| Rule { name: "r".into(), points: points.into(), across };
    let line = |ys: [f64; 2]| Line { name: "a".into(), points: vec![(1.0, ys[0]), (2.0, ys[1])] };
    let draw = |rules: Vec<Rule>| {
        let mut out = String::new();
        Lines { lines: vec![line([1.0, 2.0])], rules, ..Lines::default() }.write(&mut out, "t");
        let text = out.clone();
        let paths = text.lines().filter(|line| line.contains("class=\"rule\"")).map(str::to_owned);
        let names = text.lines().filter(|line| line.contains("class=\"name\""));
        let foot =
            |line: &str| line.split(" y=\"").nth(1).and_then(|rest| rest.split('"').next()?.parse().ok());
        (paths.collect::<Vec<_>>(), names.filter_map(foot).collect::<Vec<f64>>())
    };
    let (paths, _) = draw(vec![
        rule(&[(1.0, 4.0), (2.0, 4.0)], true),
        rule(&[(1.0, 3.0), (2.0, 4.0)], false),
        rule(&[(1.0, 3.0)], false),
    ]);
    assert!(paths[0].contains("M56 ") && paths[0].contains("H840\"") && !paths[0].contains('L'), "{paths:?}");
    assert!(paths[1].contains('L') && !paths[1].contains('H'), "{paths:?}");
    assert!(paths[2].contains('H') && !paths[2].contains("H840\""), "where it was measured alone: {paths:?}");
    // The names of two that are close do not run into each other.
    let (_, feet) = draw(vec![rule(&[(1.0, 3.9)], true), rule(&[(1.0, 4.0)], true)]);
    assert!((feet[0] - feet[1]).abs() >= 14.0, "{feet:?}");
    assert!(draw(vec![rule(&[], true)]).0.is_empty());
}
