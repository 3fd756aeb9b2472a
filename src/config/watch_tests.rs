//! Every way that a file is saved, on a real folder, five times each.

use super::*;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::time::Duration;

/// A watched file in a folder of its own.
struct Scene {
    dir: tempfile::TempDir,
    watch: Watch,
}

const FIRST: &str = "\"a.test\" = 8001\n\"b.test\" = 8001\n";

/// Longer than any wait of ours, shorter than a person's.
const LONG: Duration = Duration::from_secs(10);

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("routes.toml"), FIRST).unwrap();
        let watch = Watch::new(dir.path().join("routes.toml"), Some(FIRST.into()));
        Self { dir, watch }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("routes.toml")
    }

    /// The next thing that the watch gives, and how long it took.
    async fn next(&mut self) -> (Seen, Duration) {
        let begin = Instant::now();
        let seen = tokio::time::timeout(LONG, self.watch.changed()).await.expect("nothing was noticed");
        (seen, begin.elapsed())
    }

    async fn expect(&mut self, text: &str) -> Duration {
        let (seen, took) = self.next().await;
        assert_eq!(seen, Seen::Content(text.into()));
        took
    }

    async fn expect_nothing(&mut self, wait: Duration) {
        let seen = tokio::time::timeout(wait, self.watch.changed()).await;
        assert!(seen.is_err(), "{seen:?}");
    }
}

/// Counts the rounds that took as long as the poll would. Some may, on a busy machine; not most.
#[derive(Default)]
struct Clock {
    rounds: usize,
    slow: usize,
}

impl Clock {
    fn took(&mut self, took: Duration) {
        self.rounds += 1;
        self.slow += usize::from(took > Duration::from_millis(700));
    }

    fn check(&self) {
        assert!(self.rounds >= 5 && self.slow * 2 < self.rounds, "{} of {} came by the poll", self.slow, self.rounds);
    }
}

/// The content of one round.
fn text(round: usize) -> String {
    format!("\"a.test\" = {}\n\"b.test\" = 8001\n", 9000 + round)
}

async fn soon_in_five_rounds(mut save: impl FnMut(&Path, &str)) {
    let mut scene = Scene::new();
    let mut clock = Clock::default();
    for round in 0..5 {
        save(&scene.file(), &text(round));
        clock.took(scene.expect(&text(round)).await);
    }
    clock.check();
}

#[tokio::test]
async fn written_in_place() {
    soon_in_five_rounds(|file, text| fs::write(file, text).unwrap()).await;
}

#[tokio::test]
async fn renamed_over() {
    soon_in_five_rounds(|file, text| {
        fs::write(file.with_extension("tmp"), text).unwrap();
        fs::rename(file.with_extension("tmp"), file).unwrap();
    })
    .await;
}

#[tokio::test]
async fn edited_by_sed() {
    let mut round = 0;
    soon_in_five_rounds(|file, text| {
        let (old, new) = (if round == 0 { 8001 } else { 8999 + round }, 9000 + round);
        round += 1;
        let edit = format!("1s/{old}/{new}/");
        assert!(std::process::Command::new("sed").arg("-i").arg(edit).arg(file).status().unwrap().success());
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    })
    .await;
}

#[tokio::test]
async fn backed_up_and_written_anew_as_vim_does() {
    soon_in_five_rounds(|file, text| {
        let backup = file.with_extension("toml~");
        fs::rename(file, &backup).unwrap();
        fs::write(file, text).unwrap();
        fs::set_permissions(file, backup.metadata().unwrap().permissions()).unwrap();
        fs::remove_file(backup).unwrap();
    })
    .await;
}

#[tokio::test]
async fn deleted_and_created_at_once() {
    soon_in_five_rounds(|file, text| {
        fs::remove_file(file).unwrap();
        fs::write(file, text).unwrap();
    })
    .await;
}

/// The second of two steps comes on its own while the watch already looks.
async fn in_two_steps(first: impl Fn(&Path, &str), second: impl Fn(&Path, &str)) {
    let mut scene = Scene::new();
    for round in 0..5 {
        first(&scene.file(), &text(round));
        scene.expect_nothing(Duration::from_millis(300)).await;
        second(&scene.file(), &text(round));
        scene.expect(&text(round)).await;
    }
}

#[tokio::test]
async fn truncated_and_then_written() {
    in_two_steps(|file, _| fs::write(file, "").unwrap(), |file, text| fs::write(file, text).unwrap()).await;
}

#[tokio::test]
async fn half_written_and_then_the_rest() {
    in_two_steps(
        |file, text| fs::write(file, &text[..text.len() / 2]).unwrap(),
        |file, text| {
            let mut file = fs::OpenOptions::new().append(true).open(file).unwrap();
            file.write_all(&text.as_bytes()[text.len() / 2..]).unwrap();
        },
    )
    .await;
}

#[tokio::test]
async fn a_writer_that_has_not_closed_is_waited_for() {
    let mut scene = Scene::new();
    let mut file = fs::File::create(scene.file()).unwrap();
    file.write_all(b"\"a.test\" = 1\n").unwrap();
    scene.expect_nothing(Duration::from_millis(400)).await;
    file.write_all(b"\"b.test\" = 2\n").unwrap();
    drop(file);
    scene.expect("\"a.test\" = 1\n\"b.test\" = 2\n").await;
}

#[tokio::test]
async fn a_symlinked_folder_is_swapped_as_kubernetes_does() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    let publish = |round: usize| {
        let version = format!("..v{round}");
        fs::create_dir(root.join(&version)).unwrap();
        fs::write(root.join(&version).join("routes.toml"), text(round)).unwrap();
        symlink(&version, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        if round > 0 {
            fs::remove_dir_all(root.join(format!("..v{}", round - 1))).unwrap();
        }
    };
    publish(0);
    symlink("..data/routes.toml", root.join("routes.toml")).unwrap();
    let watch = Watch::new(root.join("routes.toml"), Some(text(0).into()));
    let mut scene = Scene { dir, watch };
    let mut clock = Clock::default();
    for round in 1..=5 {
        publish(round);
        clock.took(scene.expect(&text(round)).await);
    }
    clock.check();
}

#[tokio::test]
async fn the_target_of_a_link_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let real = elsewhere.path().join("real.toml");
    fs::write(&real, FIRST).unwrap();
    symlink(&real, dir.path().join("routes.toml")).unwrap();
    let watch = Watch::new(dir.path().join("routes.toml"), Some(FIRST.into()));
    let mut scene = Scene { dir, watch };
    let mut clock = Clock::default();
    for round in 0..5 {
        fs::write(&real, text(round)).unwrap();
        clock.took(scene.expect(&text(round)).await);
    }
    clock.check();
}

#[tokio::test]
async fn a_deleted_file_is_said_to_be_missing_once_and_its_return_is_seen() {
    let mut scene = Scene::new();
    for round in 0..2 {
        fs::remove_file(scene.file()).unwrap();
        assert_eq!(scene.next().await.0, Seen::Missing);
        scene.expect_nothing(Duration::from_millis(200)).await;
        fs::write(scene.file(), text(round)).unwrap();
        scene.expect(&text(round)).await;
    }
}

#[tokio::test]
async fn a_deleted_folder_comes_back() {
    let mut scene = Scene::new();
    let folder = scene.dir.path().join("sub");
    let file = folder.join("routes.toml");
    let create = |text: &str| {
        fs::create_dir(&folder).unwrap();
        fs::write(&file, text).unwrap();
    };
    create(FIRST);
    scene.watch = Watch::new(&file, Some(FIRST.into()));
    for round in 0..3 {
        fs::remove_dir_all(&folder).unwrap();
        create(&text(round * 2));
        scene.expect(&text(round * 2)).await;
        fs::write(&file, text(round * 2 + 1)).unwrap();
        scene.expect(&text(round * 2 + 1)).await;
    }
}

#[tokio::test]
async fn of_a_burst_the_last_content_wins() {
    let mut scene = Scene::new();
    for round in 0..5 {
        for save in 0..50 {
            fs::write(scene.file(), text(round * 100 + save)).unwrap();
            tokio::task::yield_now().await;
        }
        scene.expect(&text(round * 100 + 49)).await;
        scene.expect_nothing(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn the_hundredth_save_is_seen_like_the_first() {
    let mut scene = Scene::new();
    let mut clock = Clock::default();
    for round in 0..100 {
        fs::write(scene.file(), text(round)).unwrap();
        clock.took(scene.expect(&text(round)).await);
    }
    clock.check();
}

#[tokio::test]
async fn the_same_content_and_other_files_are_no_change() {
    let mut scene = Scene::new();
    fs::write(scene.file(), FIRST).unwrap();
    fs::write(scene.dir.path().join("other"), "x").unwrap();
    scene.expect_nothing(Duration::from_millis(300)).await;
    scene.watch.now();
    let took = scene.expect(FIRST).await;
    assert!(took < Duration::from_millis(500));
    scene.expect_nothing(Duration::from_millis(200)).await;
}

#[tokio::test]
async fn what_changed_before_the_watch_began_is_given_first() {
    let scene = Scene::new();
    fs::write(scene.file(), text(1)).unwrap();
    let watch = Watch::new(scene.file(), Some(FIRST.into()));
    Scene { watch, ..scene }.expect(&text(1)).await;
}

#[tokio::test]
async fn without_events_the_poll_sees_every_save() {
    let mut scene = Scene::new();
    scene.watch = Watch::polling(scene.file(), Some(FIRST.into()));
    for round in 0..2 {
        fs::write(scene.file().with_extension("tmp"), text(round)).unwrap();
        fs::rename(scene.file().with_extension("tmp"), scene.file()).unwrap();
        let took = scene.expect(&text(round)).await;
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    fs::write(scene.file(), text(7)).unwrap();
    scene.expect(&text(7)).await;
}

#[tokio::test]
async fn waiting_can_be_broken_off_at_any_time() {
    let mut scene = Scene::new();
    fs::write(scene.file(), text(1)).unwrap();
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < LONG);
        if let Ok(seen) = tokio::time::timeout(Duration::from_millis(3), scene.watch.changed()).await {
            assert_eq!(seen, Seen::Content(text(1).into()));
            break;
        }
    }
}

#[tokio::test]
async fn a_folder_in_the_files_place_is_said() {
    let mut scene = Scene::new();
    fs::remove_file(scene.file()).unwrap();
    fs::create_dir(scene.file()).unwrap();
    assert!(matches!(scene.next().await.0, Seen::Unreadable(_)));
}
