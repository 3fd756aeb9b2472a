//! The verbs that write the routes file.

use std::path::Path;
use std::process::Command;

use crate::support::carom::{BINARY, run};
use crate::support::{Carom, Origin};

/// `carom` with these arguments in a folder: exit code and what it said.
#[track_caller]
fn carom(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    run(Command::new(BINARY).args(arguments).current_dir(folder).env("XDG_STATE_HOME", folder.join("state")))
}

fn folder_with(routes: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("routes.toml"), routes).unwrap();
    folder
}

fn routes(folder: &tempfile::TempDir) -> String {
    std::fs::read_to_string(folder.path().join("routes.toml")).unwrap()
}

#[test]
fn a_line_that_is_set_is_applied_and_the_rest_of_the_file_stays() {
    let (one, two) = (Origin::named("one"), Origin::named("two"));
    let text = format!("# the sites\n\"a.test\" = {} # a\n", one.port());
    let running = Carom::serving(&text).start();
    let mut client = running.client();
    assert_eq!(client.get("a.test", "/").text(), "one GET /");
    let mark = running.mark();
    let (code, said) = running.verb(&["set", "A.test", &two.port().to_string()]);
    let change = format!("routes.toml changed: ~ a.test {} → {}", one.port(), two.port());
    assert_eq!((code, said), (Some(0), format!("{change}\ncarom: it is live\n")));
    running.wait_changed(mark);
    assert_eq!(client.get("a.test", "/").text(), "two GET /");
    let now = std::fs::read_to_string(running.routes_file()).unwrap();
    assert_eq!(now, text.replace(&one.port().to_string(), &two.port().to_string()));
    let mark = running.mark();
    let (code, said) = running.verb(&["set", "b.test", &one.port().to_string()]);
    assert_eq!(code, Some(0), "{said}");
    running.wait_changed(mark);
    assert_eq!(client.get("b.test", "/").text(), "one GET /");
    let mark = running.mark();
    let (code, said) = running.verb(&["unset", "b.test"]);
    assert!(code == Some(0) && said.contains("- b.test"), "{said}");
    running.wait_changed(mark);
    assert_eq!(client.get("b.test", "/").status(), 404);
    assert_eq!(std::fs::read_to_string(running.routes_file()).unwrap(), now);
}

#[test]
fn what_would_be_wrong_is_said_and_nothing_is_written() {
    let text = "\"a.test\" = 8001\n\"shop.test\" = { to = 8002, also = [\"www.shop.test\"] }\n\"old.test\" = { redirect = \"https://a.test\" }\n";
    let folder = folder_with(text);
    std::fs::write(folder.path().join("carom.toml"), "[[listen]]\naddress = \"127.0.0.1:8080\"\n").unwrap();
    std::fs::write(folder.path().join("routes.json"), "{ \"a.test\": 1 }").unwrap();
    for (arguments, code, words) in [
        (&["set", "a.test", "99999"][..], 1, &["99999", "65535"][..]),
        (&["set", "a b", "1"], 1, &["not a site"]),
        (&["set", "http://a.test", "1"], 1, &["did you mean a.test?"]),
        (
            &["set", "a.test", "8080", "--config", "carom.toml"],
            1,
            &["routes.toml:1:12", "itself", "nothing was written"],
        ),
        (&["set", "old.test", "8001"], 1, &["redirect", "carom unset old.test"]),
        (&["set", "a.test", "1", "--routes", "none.toml"], 1, &["none.toml"]),
        (&["set", "a.test", "1", "--routes", "routes.json"], 1, &["JSON"]),
        (&["unset", "b.test"], 1, &["no line is for b.test"]),
        (&["set", "a.test"], 2, &["TARGET"]),
    ] {
        let (got, said) = carom(folder.path(), arguments);
        assert_eq!(got, Some(code), "{arguments:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{word} for {arguments:?} in: {said}");
        }
        assert_eq!(routes(&folder), text, "{arguments:?}");
    }
    let folder = folder_with("\"a.test\" = 8001\n");
    let (code, said) = carom(folder.path(), &["unset", "a.test"]);
    assert!(code == Some(1) && said.contains("no route") && said.contains("on purpose"), "{said}");
    let broken = "\"a.test\" = \n\"b.test\" = 1\n";
    let folder = folder_with(broken);
    let (code, said) = carom(folder.path(), &["set", "b.test", "2"]);
    assert!(code == Some(1) && said.contains("routes.toml:1:"), "{said}");
    assert_eq!(routes(&folder), broken);
}

#[test]
fn a_name_of_also_says_whose_line_it_changes() {
    let folder = folder_with("\"shop.test\" = { to = 8002, also = [\"www.shop.test\", \"x.test\"] }\n");
    let (code, said) = carom(folder.path(), &["set", "www.shop.test", "8003", "10.0.0.7:80"]);
    assert!(code == Some(0) && said.contains("`also` of shop.test"), "{said}");
    assert!(said.contains("~ shop.test 8002 → 8003, 10.0.0.7:80") && said.contains("no carom"), "{said}");
    let (code, said) = carom(folder.path(), &["unset", "www.shop.test"]);
    assert!(code == Some(0) && said.contains("`also` of shop.test"), "{said}");
    assert_eq!(routes(&folder), "\"shop.test\" = { to = [8003, \"10.0.0.7:80\"], also = [\"x.test\"] }\n");
    let (code, said) = carom(folder.path(), &["set", "shop.test", "8003", "10.0.0.7:80"]);
    assert_eq!((code, said.trim()), (Some(0), "routes.toml: nothing changed"));
}

#[test]
fn shells_that_set_at_the_same_time_lose_nothing_of_each_other() {
    let folder = folder_with("# shared\n\"a.test\" = 1\n");
    std::thread::scope(|scope| {
        for shell in 0..4 {
            let folder = &folder;
            scope.spawn(move || {
                for i in 0..5 {
                    let (code, said) = carom(folder.path(), &["set", &format!("s{shell}-{i}.test"), "8001"]);
                    assert_eq!(code, Some(0), "{said}");
                }
            });
        }
    });
    let text = routes(&folder);
    assert_eq!(text.lines().count(), 22, "{text}");
    assert!(text.starts_with("# shared\n\"a.test\" = 1\n"), "{text}");
}
