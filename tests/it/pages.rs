//! What the pages say of the program is so: each verb and flag that they name exists, each routes file on them is right, and
//! the README names all that the program has.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support::carom::{BINARY, run};

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Runs `carom` and gives what it says; it has to be content.
#[track_caller]
fn help(arguments: &[&str]) -> String {
    let (code, said) = run(Command::new(BINARY).args(arguments));
    assert_eq!(code, Some(0), "carom {}: {said}", arguments.join(" "));
    said
}

/// The verbs of the program, without `help`.
fn verbs() -> BTreeSet<String> {
    let help = help(&["--help"]);
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let verbs = commands.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    verbs.filter(|verb| *verb != "help").map(str::to_owned).collect()
}

/// The `--flags` in a text.
fn flags(text: &str) -> BTreeSet<&str> {
    let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '-';
    text.split(is_other).filter(|word| word.starts_with("--") && word.len() > 2).collect()
}

/// What stands between two marks, and then between the next two.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
    text.split(begin).skip(1).filter_map(|rest| rest.split(end).next()).collect()
}

#[test]
fn the_readme_names_every_verb_and_every_flag() {
    let readme = page("README.md");
    let verbs = verbs();
    assert!(verbs.len() > 10, "{verbs:?}");
    for verb in &verbs {
        assert!(readme.contains(&format!("carom {verb}")), "carom {verb}");
        let help = help(&[verb, "--help"]);
        for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-') && !line.contains("--help")) {
            // `-n, --count <COUNT>  How many`: by either.
            let names = line.split([' ', ',']).take_while(|word| !word.starts_with('<')).filter(|word| word.len() > 1);
            let mut names = names.take_while(|word| word.starts_with('-'));
            assert!(names.any(|name| readme.contains(name)), "{line} of carom {verb}");
        }
    }
}

#[test]
fn the_page_about_two_instances_names_only_what_there_is() {
    let page = page("docs/two-instances.md");
    // What is typed: a line of a terminal, a script, or in the running text.
    let typed = between(&page, "```console\n", "```")
        .into_iter()
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("$ "));
    let scripts = between(&page, "```sh\n", "```").into_iter().flat_map(str::lines);
    let prose: Vec<&str> = page.split("```").step_by(2).flat_map(|text| text.split('`').skip(1).step_by(2)).collect();
    let (verbs, mut named) = (verbs(), BTreeSet::new());
    for line in typed.chain(scripts).chain(prose) {
        for command in line.split([';', '|', '&', '>', '(']) {
            let Some(rest) = command.trim().strip_prefix("carom ") else { continue };
            let verb = rest.split_whitespace().next().unwrap_or_default();
            assert!(verbs.contains(verb), "{line}");
            let help = help(&[verb, "--help"]);
            for flag in flags(rest) {
                assert!(flags(&help).contains(flag), "{flag} in: {line}");
            }
            named.insert(verb);
        }
    }
    for verb in ["status", "explain", "drain", "undrain", "deploy", "pause", "resume", "try", "confirm", "rollback"] {
        assert!(named.contains(verb), "{verb} is not on it");
    }
}

#[test]
fn the_routes_of_the_page_about_two_instances_are_right() {
    let page = page("docs/two-instances.md");
    let routes = between(&page, "```toml\n", "```");
    assert!(routes.len() > 5, "{}", routes.len());
    let folder = tempfile::tempdir().unwrap();
    for text in routes {
        std::fs::write(folder.path().join("routes.toml"), text).unwrap();
        let (code, said) = run(Command::new(BINARY).arg("check").current_dir(folder.path()));
        assert_eq!(code, Some(0), "{text}{said}");
    }
}
