//! The repository's own example files, and what `check` and `explain` say about files.

use std::path::Path;
use std::process::Command;

use crate::support::carom::{BINARY, run};

/// `carom` with these arguments in a folder with this routes file: exit code and what it said.
#[track_caller]
fn carom(routes: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("routes.toml"), routes).unwrap();
    run(Command::new(BINARY).args(arguments).current_dir(folder.path()))
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_example_routes_are_right() {
    let file = repository().join("config/routes.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.lines().filter(|line| line.contains(" = ")).count() > 3, "an example with nothing in it");
    let (code, said) = run(Command::new(BINARY).arg("check").arg(&file));
    assert_eq!(code, Some(0), "{said}");
}

/// The lines of a document's fenced blocks in one language.
fn fenced<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    document.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_readme_shows_the_example_routes_and_only_right_ones() {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let blocks = fenced(&readme, "toml");
    assert_eq!(blocks.len(), 2, "the smallest file, and the whole one");
    assert_eq!(blocks[1], std::fs::read_to_string(repository().join("config/routes.toml")).unwrap());
    for block in blocks {
        let (code, said) = carom(block, &["check"]);
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn the_readme_names_every_key_of_the_configuration() {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let example = std::fs::read_to_string(repository().join("config/carom.toml")).unwrap();
    let (mut section, mut keys) = (String::new(), 0);
    for line in example.lines() {
        let line = line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line);
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            section = match name.strip_prefix('[') {
                Some(list) => format!("[[{list}]] "),
                None => format!("{name}."),
            };
        } else if let Some((key, _)) = line.split_once(" = ") {
            keys += 1;
            assert!(readme.contains(&format!("| `{section}{key}` |")), "{section}{key} is not in the README's table");
        }
    }
    assert!(keys > 25, "{keys}");
}

#[test]
fn the_example_configuration_is_right_and_has_every_key() {
    let file = repository().join("config/carom.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    for key in [
        "routes",
        "workers",
        "address",
        "head",
        "body",
        "connect",
        "response_head",
        "response_body",
        "send",
        "idle",
        "backend_idle",
        "tunnel",
        "drain",
        "target",
        "fields",
        "chunk_line",
        "leftover",
        "replay",
        "connections",
        "trust",
        "access",
        "format",
    ] {
        let is_key = |line: &str| {
            line.trim_start_matches(['#', ' ']).strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
        };
        assert!(text.lines().any(is_key), "{key} is not in config/carom.toml");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("routes.toml"), "\"a.test\" = 1\n").unwrap();
    let (code, said) =
        run(Command::new(BINARY).args(["check", "routes.toml", "--config"]).arg(&file).current_dir(folder.path()));
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_right_file_is_exit_code_0() {
    let (code, said) = carom("\"a.test\" = 8001\n\"b.test\" = [8002, 8003]\n", &["check"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, _) = carom("\"a.test\" = 8001\n", &["check", "routes.toml"]);
    assert_eq!(code, Some(0));
}

#[test]
fn a_wrong_file_is_exit_code_1_with_place_and_advice() {
    for (routes, place, words) in [
        ("\"a.test\" = 8001\n\"b.test\" = 99999\n", "routes.toml:2:12", &["99999"][..]),
        ("\"a.test\" = 8001\n\"A.TEST.\" = 8002\n", "routes.toml:2:1", &["a.test"]),
        (
            "[\"a.test\"]\nto = 1\nballance = \"round-robin\"\n",
            "routes.toml:3:1",
            &["ballance", "did you mean", "balance"],
        ),
        ("\"a b.test\" = 1\n", "routes.toml:1:1", &["a b.test"]),
        ("\"a.test:80\" = 1\n", "routes.toml:1:1", &["port"]),
        ("\"http://a.test\" = 1\n", "routes.toml:1:1", &["a.test"]),
        ("\"a.test\" = \"ftp://b\"\n", "routes.toml:1:12", &["ftp"]),
        ("\"a.test\" = \"https://b.test/x\"\n", "routes.toml:1:12", &["no path"]),
        ("\"a.test\" = \"grpc://b.test\"\n", "routes.toml:1:12", &["h2c://b.test"]),
        ("\"a.test\" = []\n", "routes.toml:1:12", &[]),
        ("\"a.test\" = \n", "routes.toml:1:", &[]),
        ("\"a.test\" = [\n8001,\n", "routes.toml:", &[]),
    ] {
        let (code, said) = carom(routes, &["check"]);
        assert_eq!(code, Some(1), "{routes:?}: {said}");
        assert!(said.contains(place), "{place} for {routes:?} in: {said}");
        for word in words {
            assert!(said.contains(word), "{word} for {routes:?} in: {said}");
        }
        // The line itself is shown and underlined.
        assert!(said.contains('^') || said.contains('━'), "{said}");
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let (code, said) =
        carom("\"a.test\" = 99999\n\"b.test\" = 1\n\"c d\" = 1\n\"e.test\" = \"nope nope\"\n", &["check"]);
    assert_eq!(code, Some(1));
    for place in ["routes.toml:1:", "routes.toml:3:", "routes.toml:4:"] {
        assert!(said.contains(place), "{place} in: {said}");
    }
    assert!(!said.contains("routes.toml:2:"), "{said}");
}

#[test]
fn a_file_that_is_not_there_is_said_to_be_not_there() {
    let (code, said) = carom("", &["check", "other.toml"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("other.toml"), "{said}");
}

#[test]
fn explain_says_which_line_and_which_backend() {
    let routes = "\"a.test\" = 8001\n\"a.test/api/\" = [8002, 8003]\n\"*.w.test\" = 8004\n";
    for (url, words) in [
        ("http://a.test/", &["a.test", "routes.toml:1", "8001"][..]),
        ("http://A.TEST.:80/api/x?y", &["a.test/api/", "routes.toml:2", "8002"]),
        ("a.test/api", &["a.test/api/", "8002"]),
        ("http://x.y.w.test", &["*.w.test", "routes.toml:3", "8004"]),
    ] {
        let (code, said) = carom(routes, &["explain", url]);
        assert_eq!(code, Some(0), "{url}: {said}");
        for word in words {
            assert!(said.contains(word), "{word} for {url} in: {said}");
        }
    }
}

#[test]
fn explain_says_why_nothing_matches_and_what_nearly_does() {
    let routes = "\"a.test/api/\" = 8002\n\"*.w.test\" = 8004\n\"shop.test\" = 8005\n";
    for (url, near) in
        [("http://a.test/apix", "a.test/api"), ("http://w.test/", "*.w.test"), ("http://shpo.test/", "shop.test")]
    {
        let (code, said) = carom(routes, &["explain", url]);
        assert_eq!(code, Some(1), "{url}: {said}");
        assert!(said.contains(near), "{near} for {url} in: {said}");
    }
    let (code, said) = carom(routes, &["explain", "http://a b/"]);
    assert!(code.is_some_and(|code| code != 0), "{said}");
}
