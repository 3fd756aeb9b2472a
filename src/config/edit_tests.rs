use super::*;

fn targets(text: &str) -> Vec<String> {
    text.split_whitespace().map(ToOwned::to_owned).collect()
}

#[track_caller]
fn assert_set(text: &str, site: &str, to: &str, want: &str) {
    let edited = set(text, site, &targets(to)).unwrap_or_else(|why| panic!("{text}: {why:?}"));
    assert_eq!(edited.text, want, "of {text}");
    // What is set is what is there: setting it once more changes nothing.
    assert_eq!(set(want, site, &targets(to)).unwrap().text, want);
}

#[track_caller]
fn assert_unset(text: &str, site: &str, want: &str) {
    let edited = unset(text, site).unwrap_or_else(|why| panic!("{text}: {why:?}"));
    assert_eq!(edited.text, want, "of {text}");
}

#[track_caller]
fn refused(result: Result<Edited, Refused>) -> String {
    match result.unwrap_err() {
        Refused::Syntax => "syntax".to_owned(),
        Refused::Because { what, help } => format!("{what}; {}", help.unwrap_or_default()),
    }
}

#[test]
fn a_plain_line_stays_plain_and_keeps_its_comment() {
    for (line, to, want) in [
        ("\"a.test\" = 8001 # one\n", "8002", "\"a.test\" = 8002 # one\n"),
        ("\"a.test\"=8001#one\n", "8002", "\"a.test\"=8002#one\n"),
        ("\"a.test\" = 8001 # one\n", "8001 8002", "\"a.test\" = [8001, 8002] # one\n"),
        ("\"a.test\"   =   [8001, 8002]   # two\n", "8003", "\"a.test\"   =   8003   # two\n"),
        ("\"a.test\" = [8001, 8002] # two\n", "8002 8003", "\"a.test\" = [8002, 8003] # two\n"),
        ("\"a.test\" = [ 8001, 8002 ]\n", "8002 8003 8004", "\"a.test\" = [ 8002, 8003, 8004 ]\n"),
        ("\"a.test\" = [8001,8002]\n", "8001 8002 8003", "\"a.test\" = [8001,8002,8003]\n"),
        ("'a.test' = 8001", "10.0.0.7:80", "'a.test' = \"10.0.0.7:80\"\n"),
        ("\"a.test\" = 8001\n", "unix:/run/a.sock", "\"a.test\" = \"unix:/run/a.sock\"\n"),
        // As the file is read, this is the same target.
        ("\"a.test\" = \"localhost:8001\"\n", "8001", "\"a.test\" = \"localhost:8001\"\n"),
    ] {
        assert_set(line, "a.test", to, want);
        let around = format!("# head\n\n\"x.test\" = 1 # x\n{line}");
        assert_set(&around, "a.test", to, &format!("# head\n\n\"x.test\" = 1 # x\n{want}"));
    }
}

#[test]
fn what_is_said_of_a_target_stays_with_it() {
    assert_set(
        "a = [8001, { to = 8002, weight = 2 }, { to = 8003, backup = true }]\n",
        "a",
        "8004 8003 8002",
        "a = [8004, { to = 8003, backup = true }, { to = 8002, weight = 2 }]\n",
    );
    // Alone it would be a route.
    assert_set("a = [1, { to = 2, weight = 2 }]\n", "a", "2", "a = [{ to = 2, weight = 2 }]\n");
    assert_set(
        "a = { to = { to = 1, weight = 2 }, wait = \"1s\" }\n",
        "a",
        "1",
        "a = { to = { to = 1, weight = 2 }, wait = \"1s\" }\n",
    );
    assert_set(
        "a = { to = { to = 1, weight = 2 }, wait = \"1s\" }\n",
        "a",
        "1 3",
        "a = { to = [{ to = 1, weight = 2 }, 3], wait = \"1s\" }\n",
    );
}

#[test]
fn comments_in_an_array_stay_with_their_item() {
    let text = "a = [ # all of them
    8001, # the old one
    # the new one is below
    8002, # the new one
    8003,
] # end
";
    assert_set(
        text,
        "a",
        "8002 8004",
        "a = [ # all of them
    # the new one is below
    8002, # the new one
    8004,
] # end
",
    );
    assert_set(text, "a", "8003", "a = [ # all of them\n    8003,\n] # end\n");
    let text = "a = [\n  8001, # one\n  8002 # two\n]\n";
    assert_set(text, "a", "8002 8001", "a = [\n  8002, # two\n  8001 # one\n]\n");
    assert_set(text, "a", "8001 8002 8003", "a = [\n  8001, # one\n  8002, # two\n  8003\n]\n");
    // A comment never swallows what comes behind it.
    let text = "a = [1, 2, # two in a line\n   3]\n";
    assert_set(text, "a", "2 1", "a = [2, # two in a line\n    1]\n");
    assert_set(text, "a", "1 2", "a = [1, 2 # two in a line\n]\n");
}

#[test]
fn a_table_keeps_its_other_keys() {
    let header = "a = 1\n\n# the shop\n[\"shop.test\"] # here\nto = [8011, 8012] # two\nalso = [\"www.shop.test\"]\n\n[b]\nto = 2\n";
    assert_set(header, "shop.test", "8013", &header.replace("[8011, 8012]", "8013"));
    assert_set("a = { to = 1, wait = \"1s\" }\n", "a", "2 3", "a = { to = [2, 3], wait = \"1s\" }\n");
    assert_set("a.to = 1\na.wait = \"1s\"\n", "a", "2", "a.to = 2\na.wait = \"1s\"\n");
    assert_set(
        "a = { passthrough = \"10.0.0.1:443\" }\n",
        "a",
        "10.0.0.2:443",
        "a = { passthrough = \"10.0.0.2:443\" }\n",
    );
    assert_set("[a]\nto = 1\n[a.health]\npath = \"/up\"\n", "a", "2", "[a]\nto = 2\n[a.health]\npath = \"/up\"\n");
    let said = refused(set("a = { redirect = \"https://b.test\" }\n", "a", &targets("1")));
    assert!(said.contains("a has `redirect`") && said.contains("carom unset a"), "{said}");
    assert!(refused(set("[[a]]\nto = 1\n", "a", &targets("1"))).contains("by hand"));
}

#[test]
fn a_site_is_found_as_the_routes_compare_it() {
    for (key, site) in [
        ("\"Shop.Test.\"", "shop.test"),
        ("\"shop.test\"", "SHOP.test."),
        ("\"bücher.test\"", "xn--bcher-kva.test"),
        ("\"*.a.test\"", "*.A.test"),
        ("\"\"", "*"),
        ("\"a.test/api/\"", "a.test/api"),
    ] {
        assert_set(&format!("x = 1\n{key} = 1\n"), site, "2", &format!("x = 1\n{key} = 2\n"));
        assert_unset(&format!("x = 1\n{key} = 1\n"), site, "x = 1\n");
    }
    let text = "x = 1\nshop = { to = 1, also = [\"www.shop\", \"Old.Shop\"] }\n";
    let edited = set(text, "old.shop", &targets("2")).unwrap();
    assert_eq!(edited.text, text.replace("to = 1", "to = 2"));
    assert_eq!((edited.line.as_str(), edited.by_also), ("shop", true));
}

#[test]
fn a_new_site_comes_behind_the_plain_lines() {
    assert_set("a = 1 # a\n", "b.test", "2 3", "a = 1 # a\n\"b.test\" = [2, 3]\n");
    assert_set("a = 1", "b.test", "2", "a = 1\n\"b.test\" = 2\n");
    let text = "# head\n\na = 1\n\n# the shop\n[shop]\nto = 2\n# end\n";
    assert_set(text, "b.test", "3", "# head\n\na = 1\n\"b.test\" = 3\n\n# the shop\n[shop]\nto = 2\n# end\n");
    assert_set(
        "# head\n\n# the shop\n[shop]\nto = 2\n",
        "b.test",
        "3",
        "# head\n\n\"b.test\" = 3\n\n# the shop\n[shop]\nto = 2\n",
    );
    assert_set("# the shop\n[shop]\nto = 2\n", "b.test", "3", "\"b.test\" = 3\n# the shop\n[shop]\nto = 2\n");
    assert_set("# nothing yet\n", "b.test", "3", "# nothing yet\n\"b.test\" = 3\n");
    assert_set("# nothing yet", "b.test", "3", "# nothing yet\n\"b.test\" = 3\n");
    assert_set("", "b.test", "3", "\"b.test\" = 3\n");
}

#[test]
fn a_line_goes_with_the_comment_right_above_it() {
    let text = "# the whole file\n\n# a's\na = 1 # a\n\n# b's\nb = 2\n\n# c's\n[c]\nto = 3\n\n[d]\nto = 4\n# end\n";
    assert_unset(text, "a", "# the whole file\n\n# b's\nb = 2\n\n# c's\n[c]\nto = 3\n\n[d]\nto = 4\n# end\n");
    assert_unset(text, "b", "# the whole file\n\n# a's\na = 1 # a\n\n# c's\n[c]\nto = 3\n\n[d]\nto = 4\n# end\n");
    assert_unset(text, "c", "# the whole file\n\n# a's\na = 1 # a\n\n# b's\nb = 2\n\n[d]\nto = 4\n# end\n");
    assert_unset("# all\n\n[c]\nto = 3\n[d]\nto = 4\n", "c", "# all\n\n[d]\nto = 4\n");
    assert_unset("# all\n\na = 1\n", "a", "# all\n\n");
    assert_unset("# all\n\na = 1\n\n# c's\n[c]\nto = 3\n", "a", "# all\n\n# c's\n[c]\nto = 3\n");
    assert_unset("[a]\nto = 1\n[a.health]\npath = \"/\"\n[b]\nto = 2\n", "a", "[b]\nto = 2\n");
    assert!(refused(unset(text, "nobody.test")).contains("no line is for nobody.test"));
}

#[test]
fn a_name_of_also_goes_alone() {
    for (text, want) in [
        ("a = { to = 1, also = [\"b\", \"c\"] }\n", "a = { to = 1, also = [\"c\"] }\n"),
        ("a = { to = 1, also = [\"c\", \"b\"] }\n", "a = { to = 1, also = [\"c\"] }\n"),
        ("a = { to = 1, also = [\"b\"] }\n", "a = { to = 1 }\n"),
        ("a = { to = 1, also = \"b\" }\n", "a = { to = 1 }\n"),
        ("[a]\nto = 1\nalso = [\n  \"b\", # b\n  \"c\", # c\n]\n", "[a]\nto = 1\nalso = [\n  \"c\", # c\n]\n"),
        ("[a]\nto = 1 # to\nalso = [\"b\"] # also\n[x]\nto = 2\n", "[a]\nto = 1 # to\n[x]\nto = 2\n"),
    ] {
        assert_unset(text, "b", want);
        assert!(unset(text, "b").unwrap().by_also);
    }
}

#[test]
fn line_ends_and_a_byte_order_mark_stay() {
    assert_set("a = 1\r\n\r\n[b]\r\nto = 2\r\n", "a", "3", "a = 3\r\n\r\n[b]\r\nto = 2\r\n");
    assert_set("a = 1\r\n", "b", "3", "a = 1\r\nb = 3\r\n");
    assert_set("\u{feff}a = 1\n", "a", "3", "\u{feff}a = 3\n");
}

#[test]
fn what_is_no_site_no_target_or_no_toml_is_refused() {
    for (site, to, word) in [
        ("http://a.test", "1", "did you mean a.test"),
        ("a b", "1", "is not a site"),
        ("a.test", "", "needs a target"),
        ("a.test", "99999", "65535"),
        ("a.test", "8001 b.test", "needs a port"),
    ] {
        let said = refused(set("a = 1\n", site, &targets(to)));
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(set("a = \n", "a", &targets("1")), Err(Refused::Syntax));
    assert_eq!(unset("a = = 1\n", "a"), Err(Refused::Syntax));
}

#[test]
fn what_is_not_touched_stays_byte_for_byte() {
    let text = include_str!("../../config/routes.toml");
    let edited = set(text, "www.shop.example.com", &targets("10.0.0.8:8011 8014")).unwrap();
    assert_eq!((edited.line.as_str(), edited.by_also), ("shop.example.com", true));
    let changed: Vec<(&str, &str)> = text.lines().zip(edited.text.lines()).filter(|(old, new)| old != new).collect();
    let [(_, new)] = changed.as_slice() else { panic!("{changed:?}") };
    assert_eq!(*new, "to = [{ to = \"10.0.0.8:8011\", weight = 2 }, 8014]");
    assert_eq!(text.lines().count(), edited.text.lines().count());
}
