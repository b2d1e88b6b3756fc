//! The table and the curve of a sweep, and which sweeps there are.

use super::*;

pub fn row(value: &str, gbps: f64, ceilings: Option<Found>) -> Row {
    Row {
        line: "a".into(),
        value: value.into(),
        rate: gbps * 1e9,
        per_second: 1.0,
        times: Some([1000, 2000]),
        cpu_s_per_gib: 0.1,
        ceilings,
        failed: false,
    }
}

pub fn sweep(rows: Vec<Row>) -> Sweep {
    Sweep { key: "iodepth", of: "job", per_second: "IOPS", rows }
}

pub fn device(device: f64) -> Option<Found> {
    Some(Ok(Ceilings { device, links: Vec::new() }))
}

#[test]
fn a_key_has_values_with_commas_between() {
    let asked = |text: &str| parse(text).map(|asked| (asked.key.name, asked.values.join(";")));
    assert_eq!(asked("iodepth=1,2, 4"), Ok(("iodepth", "1;2;4".into())));
    assert_eq!(asked("blocksize=1m"), Ok(("bs", "1m".into())));
    assert_eq!(asked(r"mem=host,gpu:0\,1"), Ok(("mem", "host;gpu:0,1".into())));
    assert_eq!(asked(r"filename=/a\:b=c,/d"), Ok(("filename", r"/a\:b=c;/d".into())));
    for (text, part) in [
        ("iodepth", "write a key and its values"),
        ("iodeth=1,2", "iodeth: there is no such key: did you mean iodepth?"),
        ("zonesize=1m", "fio has this key"),
        ("name=a,b", "is of the whole run"),
        ("output=a,b", "is of the whole run"),
        ("sweep=a", "is of the whole run"),
        ("iodepth=1,,2", "is empty"),
        ("iodepth=", "is empty"),
        ("iodepth=1,2,1", "iodepth=1 is there twice"),
    ] {
        let why = parse(text).unwrap_err();
        assert!(why.contains(part) && !why.contains('\n'), "{text}: {why}");
    }
    let many: Vec<String> = (0..=MOST).map(|n| n.to_string()).collect();
    assert!(parse(&format!("size={}", many.join(","))).unwrap_err().contains("leave some out"));
}

#[test]
fn the_table_of_arms_has_a_line_for_each_value() {
    let all = |line: &str| {
        let words = line.split_whitespace().map(OsString::from).collect();
        let lines = lines(words)?;
        let text =
            |(words, swept): Line| (words.last().map(|word| word.to_string_lossy().into_owned()), swept);
        Ok::<_, Failure>(lines.into_iter().map(text).collect::<Vec<_>>())
    };
    let one = |word: &str, swept| (Some(word.to_owned()), swept);
    assert_eq!(all("bench --bs=1m").unwrap(), [one("--bs=1m", None)]);
    let found = all("bench --sweep=lane-depth=1,8 --bs=1m").unwrap();
    let wanted = |value: &str| one(&format!("--lane_depth={value}"), Some(("lane_depth", value.into())));
    assert_eq!(found, [wanted("1"), wanted("8")]);
    assert_eq!(all("bench --sweep lanes=2").unwrap(), [one("--lanes=2", Some(("lanes", "2".into())))]);
    for (line, part) in [
        ("--sweep=iodeth=1", "did you mean iodepth?"),
        ("--sweep=rwmixread=1", "is of jobs: name one"),
        ("--sweep=bs=1m --sweep=iodepth=1", "one key is swept at a time"),
    ] {
        let why = all(line).unwrap_err().to_string();
        assert!(why.starts_with("--sweep=") && why.contains(part) && !why.contains('\n'), "{why}");
    }
}

#[test]
fn bars_are_as_long_as_the_rates_and_the_ceiling_stands_behind_them() {
    let text = sweep(vec![row("1", 1.0, None), row("16", 4.0, None)]).table();
    let bars: Vec<usize> = text.lines().skip(3).map(|line| line.matches('#').count()).collect();
    assert_eq!(bars, [10, 40], "{text}");
    assert!(!text.contains("ceilings") && !text.contains('|'), "{text}");

    let held = sweep(vec![row("1", 1.0, device(8.0)), row("16", 4.0, device(8.0))]);
    let text = held.table();
    let lines: Vec<&str> = text.lines().skip(3).collect();
    let at = |line: &str| line.find('|');
    assert_eq!(lines[0].matches('#').count(), 5, "{text}");
    assert!(at(lines[0]).is_some() && at(lines[0]) == at(lines[1]), "{text}");
    assert!(lines[0].contains(" 12% ") && lines[1].contains(" 50% "), "{text}");
    assert!(lines[2].contains("the device binds, and the best reached 50 % of it (| in"), "{text}");

    let why = Some(Err("it writes".to_owned()));
    let text = sweep(vec![row("1", 1.0, why.clone()), row("2", 1.0, why)]).table();
    assert!(text.ends_with("\nceilings: not measured: it writes\n"), "{text}");
}

#[test]
fn a_ceiling_is_of_the_values_that_go_its_way() {
    let rows = vec![row("host", 1.0, device(2.0)), row("x", 3.0, device(4.0)), row("y", 2.0, device(4.0))];
    let all = sweep(rows);
    let json = all.json();
    assert_eq!(json["values"], json!(["host", "x", "y"]));
    assert_eq!(json["ceilings"][0]["values"], json!(["host"]));
    assert_eq!(json["ceilings"][1]["values"], json!(["x", "y"]));
    assert_eq!(json["ceilings"][1]["best_of_ceiling"], json!(0.75));
    assert_eq!(json["rows"][2]["of_ceiling"], json!(0.5));
    assert_eq!(
        (json["rows"][2]["job"].as_str(), json["rows"][2]["lat_ns"]["p99"].as_u64()),
        (Some("a"), Some(2000))
    );
    assert!(all.table().contains("\niodepth=x,y: ceilings, measured: device 4.000"), "{}", all.table());
    let writes = Row { line: "w".into(), ..row("1", 1.0, Some(Err("it writes".into()))) };
    let mixed = sweep(vec![row("1", 1.0, device(2.0)), writes]).table();
    assert!(
        mixed.contains("\na: ceilings, measured")
            && mixed.ends_with("\nw: ceilings: not measured: it writes\n"),
        "{mixed}"
    );
}

#[test]
fn what_failed_is_named_and_no_point_of_the_curve() {
    let failed = Row { failed: true, ..row("2", 9.0, device(10.0)) };
    let all = sweep(vec![row("1", 1.0, device(10.0)), failed]);
    let text = all.table();
    let lines: Vec<&str> = text.lines().skip(3).collect();
    assert!(lines[1].contains(" failed ") && !lines[1].contains(['#', '|', '%']), "{text}");
    assert!(text.contains("the best reached 10 % of it"), "{text}");
    assert_eq!(
        (&all.json()["rows"][0]["failed"], &all.json()["rows"][1]["failed"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(all.figure().table.rows[1][3], "failed");
}
