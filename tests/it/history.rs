//! The tables that were live: what is kept of them, and how a broken file at the start is survived.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::carom::{BINARY, run};
use crate::support::{Carom, Origin, poll_until};

/// A routes file and a state folder that outlive the caroms of a test.
struct Home(tempfile::TempDir);

impl Home {
    fn with(routes: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.save(routes);
        home
    }

    fn routes(&self) -> PathBuf {
        self.0.path().join("routes.toml")
    }

    fn save(&self, routes: &str) {
        let new = self.0.path().join("new");
        std::fs::write(&new, routes).unwrap();
        std::fs::rename(new, self.routes()).unwrap();
    }

    fn arguments<'a>(&self, more: &[&'a str]) -> Vec<std::borrow::Cow<'a, str>> {
        let path = |path: PathBuf| path.to_str().unwrap().to_owned().into();
        let own = ["serve".into(), path(self.routes()), "--state".into(), path(self.0.path().join("state"))];
        let listen = ["--listen", "127.0.0.1:0", "--workers", "1"];
        own.into_iter().chain(listen.into_iter().chain(more.iter().copied()).map(Into::into)).collect()
    }

    #[track_caller]
    fn carom(&self) -> Carom {
        let arguments = self.arguments(&[]);
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        Carom::in_folder(tempfile::tempdir().unwrap(), &arguments)
    }

    /// A start that can't be.
    #[track_caller]
    fn fail(&self, more: &[&str]) -> (Option<i32>, String) {
        run(Command::new(BINARY).args(self.arguments(more).iter().map(AsRef::<str>::as_ref)))
    }

    /// A verb that is about its routes: exit code, and what it said.
    #[track_caller]
    fn verb(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let (routes, state) = (self.routes(), self.0.path().join("state"));
        run(Command::new(BINARY).args(arguments).arg("--routes").arg(routes).arg("--state").arg(state))
    }

    /// The folder of each kept table, by its number.
    fn kept(&self) -> Vec<(u64, PathBuf)> {
        kept_below(&self.0.path().join("state"))
    }

    /// Waits until so many tables are kept.
    #[track_caller]
    fn wait_kept(&self, count: usize) {
        poll_until(&format!("that {count} tables are kept"), || self.kept().len() == count);
    }
}

fn kept_below(state: &Path) -> Vec<(u64, PathBuf)> {
    let of_routes = std::fs::read_dir(state).into_iter().flatten().flatten();
    let tables = of_routes.flat_map(|folder| std::fs::read_dir(folder.path().join("history")).into_iter().flatten());
    let mut all: Vec<(u64, PathBuf)> =
        tables.flatten().filter_map(|t| Some((t.file_name().to_str()?.parse().ok()?, t.path()))).collect();
    all.sort();
    all
}

fn to(origin: &Origin) -> String {
    format!("\"a.test\" = {}\n", origin.port())
}

#[test]
fn a_broken_file_at_the_start_is_said_and_the_last_good_table_serves_until_it_is_right() {
    let (one, two) = (Origin::named("one"), Origin::named("two"));
    let home = Home::with(&to(&one));
    drop(home.carom());
    home.save("\"a.test\" = 99999\n");
    let carom = home.carom();
    let said = carom.said(0).join("\n");
    assert!(said.contains("routes.toml:1:12") && said.contains("99999"), "{said}");
    assert!(said.contains("SERVING THE LAST GOOD TABLE") && said.contains("number 1, of 20"), "{said}");
    assert!(said.contains("from table 1 of 20"), "{said}");
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/").text(), "one GET /");
    let mark = carom.mark();
    home.save(&to(&two));
    carom.wait_changed(mark);
    assert_eq!(client.get("a.test", "/").text(), "two GET /");
    home.wait_kept(2);
}

#[test]
fn a_missing_file_at_the_start_is_said_and_the_last_good_table_serves() {
    let one = Origin::named("one");
    let home = Home::with(&to(&one));
    drop(home.carom());
    std::fs::remove_file(home.routes()).unwrap();
    let carom = home.carom();
    let said = carom.said(0).join("\n");
    assert!(said.contains("can't be read") && said.contains("SERVING THE LAST GOOD TABLE"), "{said}");
    assert_eq!(carom.client().get("a.test", "/").text(), "one GET /");
    let mark = carom.mark();
    home.save(&to(&one));
    carom.stderr(mark, "that the file is back", |line| line.contains("no route has changed"));
}

#[test]
fn a_broken_file_at_the_start_is_the_end_where_nothing_is_kept_or_nothing_else_is_wanted() {
    let home = Home::with("\"a.test\" = 99999\n");
    let (code, said) = home.fail(&[]);
    assert_eq!(code, Some(1), "{said}");
    home.save("\"a.test\" = 1\n");
    drop(home.carom());
    home.save("\"a.test\" = 99999\n");
    let (code, said) = home.fail(&["--strict"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("routes.toml:1:12") && !said.contains("LAST GOOD"), "{said}");
}

#[test]
fn a_kept_table_that_is_good_no_more_makes_way_for_the_one_before() {
    let one = Origin::named("one");
    let home = Home::with(&to(&one));
    let carom = home.carom();
    let mark = carom.mark();
    home.save("\"a.test\" = 1\n");
    carom.wait_changed(mark);
    home.wait_kept(2);
    drop(carom);
    std::fs::write(home.kept()[1].1.join("routes.toml"), "\"a.test\" = \n").unwrap();
    home.save("\"a.test\" = 99999\n");
    let carom = home.carom();
    let said = carom.said(0).join("\n");
    assert!(said.contains("table 2 of 20") && said.contains("good no more"), "{said}");
    assert!(said.contains("number 1, of 20"), "{said}");
    assert_eq!(carom.client().get("a.test", "/").text(), "one GET /");
}

#[test]
fn each_table_that_was_live_is_kept_once_with_what_it_changed() {
    let home = Home::with("\"a.test\" = 1\n");
    let carom = home.carom();
    for (text, what) in [
        ("\"a.test\" = 2\n", "a.test 1 → 2"),
        ("\"a.test\" = \n", ""),
        ("\"a.test\" = 2 # the same\n", "nothing changed"),
        ("\"a.test\" = 3\n", "a.test 2 → 3"),
    ] {
        let mark = carom.mark();
        home.save(text);
        carom.stderr(mark, "what came of the save", |line| line.contains("routes.toml"));
        let about = |kept: &(u64, PathBuf)| std::fs::read_to_string(kept.1.join("about.json")).unwrap_or_default();
        if what.is_empty() {
            continue;
        }
        poll_until("that it is kept", || home.kept().last().is_some_and(|kept| about(kept).contains(what)));
        let (_, folder) = home.kept().pop().unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("routes.toml")).unwrap(), text);
    }
    drop(carom);
    // A start keeps what the file came to say meanwhile, and nothing where that is the same.
    drop(home.carom());
    assert_eq!(home.kept().iter().map(|kept| kept.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    home.save("\"b.test\" = 4\n");
    drop(home.carom());
    let (number, folder) = home.kept().pop().unwrap();
    let about = std::fs::read_to_string(folder.join("about.json")).unwrap();
    assert!(number == 5 && about.contains("+ b.test") && about.contains("- a.test"), "{number} {about}");
}

#[test]
fn where_nothing_can_be_kept_one_warning_says_so_and_requests_are_served() {
    let (one, two) = (Origin::named("one"), Origin::named("two"));
    let home = Home::with(&to(&one));
    // A folder below a file can't be made, whoever asks.
    std::fs::write(home.0.path().join("state"), "").unwrap();
    let carom = home.carom();
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/").text(), "one GET /");
    for (origin, name) in [(&two, "two"), (&one, "one"), (&two, "two")] {
        let mark = carom.mark();
        home.save(&to(origin));
        carom.wait_changed(mark);
        assert_eq!(client.get("a.test", "/").text(), format!("{name} GET /"));
    }
    let said = carom.said(0);
    let warnings: Vec<&String> = said.iter().filter(|line| line.contains("can't be kept")).collect();
    assert_eq!(warnings.len(), 1, "{said:#?}");
    assert!(said.iter().any(|line| line.contains("--state")), "{said:#?}");
}

#[test]
fn the_history_says_number_time_and_changes_and_what_a_table_said() {
    let home = Home::with("\"a.test\" = 1\n");
    let (code, said) = home.verb(&["history"]);
    assert!(code == Some(1) && said.contains("no table") && said.contains("--state"), "{said}");
    let carom = home.carom();
    for (count, text) in [(2, "\"a.test\" = 2 # two\n"), (3, "\"a.test\" = 2\n\"b.test\" = 3\n")] {
        home.save(text);
        home.wait_kept(count);
    }
    let (code, said) = home.verb(&["history"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((code, lines.len()), (Some(0), 3), "{said}");
    for (line, begin, end) in [
        (lines[0], "*    3  20", "UTC  + b.test → 3"),
        (lines[1], "     2  20", "UTC  ~ a.test 1 → 2"),
        (lines[2], "     1  20", "UTC  routes.toml came with 1 route"),
    ] {
        assert!(line.starts_with(begin) && line.ends_with(end), "{said}");
    }
    assert_eq!(home.verb(&["history", "2"]), (Some(0), "\"a.test\" = 2 # two\n".to_owned()));
    let (code, said) = home.verb(&["history", "9"]);
    assert!(code == Some(1) && said.contains("table 9 is not kept: there are 1 to 3"), "{said}");
    drop(carom);
    home.save("\"c.test\" = 4\n");
    let (_, said) = home.verb(&["history"]);
    assert!(!said.contains('*') && said.contains("says something else now"), "{said}");
}

#[test]
fn a_rollback_serves_what_was_live_before_and_is_a_table_of_its_own() {
    let (one, two) = (Origin::named("one"), Origin::named("two"));
    let first = format!("# the first\n{}", to(&one));
    let home = Home::with(&first);
    let carom = home.carom();
    let mut client = carom.client();
    home.save(&to(&two));
    home.wait_kept(2);
    assert_eq!(client.get("a.test", "/").text(), "two GET /");
    let mark = carom.mark();
    let (code, said) = home.verb(&["rollback"]);
    assert!(code == Some(0) && said.contains("is back at table 1 of 20"), "{said}");
    assert!(said.contains(&format!("~ a.test {} → {}", two.port(), one.port())), "{said}");
    carom.wait_changed(mark);
    assert_eq!(client.get("a.test", "/").text(), "one GET /");
    assert_eq!(std::fs::read_to_string(home.routes()).unwrap(), first);
    home.wait_kept(3);
    // Once more is the way forward again; a number is any of them.
    let mark = carom.mark();
    let (code, said) = home.verb(&["rollback"]);
    assert!(code == Some(0) && said.contains("table 2"), "{said}");
    carom.wait_changed(mark);
    home.wait_kept(4);
    drop(carom);
    let (code, said) = home.verb(&["rollback", "1"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(std::fs::read_to_string(home.routes()).unwrap(), first);
    // What was broken by hand is put right by the table that serves.
    home.save("\"a.test\" = 99999\n");
    let carom = home.carom();
    let mark = carom.mark();
    let (code, said) = home.verb(&["rollback"]);
    assert!(code == Some(0) && said.contains("right again"), "{said}");
    carom.stderr(mark, "that the file is right", |line| line.contains("no route has changed"));
}

#[test]
fn a_table_that_is_good_no_more_is_no_way_back() {
    let home = Home::with("\"a.test\" = { to = \"https://127.0.0.1:1\", ca = \"ca.pem\" }\n");
    let ca = home.0.path().join("ca.pem");
    std::fs::write(&ca, crate::support::tls::root()).unwrap();
    let carom = home.carom();
    home.save("\"a.test\" = 1\n");
    home.wait_kept(2);
    std::fs::remove_file(&ca).unwrap();
    let (code, said) = home.verb(&["rollback"]);
    assert_eq!(code, Some(1), "{said}");
    for word in ["routes.toml:1:", "ca.pem", "nothing was written", "table 1 of 20", "no way back"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    assert_eq!(std::fs::read_to_string(home.routes()).unwrap(), "\"a.test\" = 1\n");
    carom.assert_running();
}
