//! Which folders have to be watched for a path, or for many, and the watching of them.
//!
//! A path may lead through symbolic links, and each may be swapped (Kubernetes renames `..data`): every entry that the
//! path depends on is watched in its own folder. A watch on the file itself would end with its first rename.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::look::{Identity, Subject};
use super::settle::Saved;

/// The folders of one subject, watched.
#[derive(Debug)]
pub(super) struct Folders {
    armed: Vec<Link>,
    /// Dropped and made anew when the links change, so that its filter belongs to it alone.
    watcher: Option<RecommendedWatcher>,
    events: mpsc::Receiver<Event>,
    /// A watched folder is gone, and with it its watch.
    lost: bool,
}

/// What an event says about the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It was saved.
    Saved(Saved),
    /// Something about it is different.
    Look,
    /// The folder that was watched is gone.
    Lost,
}

/// An entry in a folder that the path depends on.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    folder: PathBuf,
    /// Tells a folder from another one of the same name.
    identity: Option<Identity>,
    /// Which one; `None` for every one.
    name: Option<PathBuf>,
}

/// More events than this at once say no more than that something happens.
const MOST_EVENTS: usize = 1024;

/// The most links that a path may lead through, as Linux has it.
const MOST_LINKS: usize = 40;

impl Folders {
    /// Watches nothing yet: see [`Folders::arm`].
    pub(super) fn new() -> Self {
        // The sender is gone at once: nothing will come.
        Self { armed: Vec::new(), watcher: None, events: mpsc::channel(1).1, lost: false }
    }

    /// Whether events come at all.
    pub(super) fn is_armed(&self) -> bool {
        self.watcher.is_some()
    }

    /// Watches what the subject depends on now, if that is not watched already. Says whether anything was done.
    pub(super) fn arm(&mut self, subject: &Subject) -> Result<bool, notify::Error> {
        let (paths, whole) = subject.watched();
        let mut links: Vec<Link> = paths.iter().flat_map(|path| links(path)).collect();
        links.extend(whole.into_iter().map(|folder| {
            let folder = std::path::absolute(&folder).unwrap_or(folder);
            Link { identity: Identity::of_folder(&folder), folder, name: None }
        }));
        if links == self.armed && !self.lost {
            return Ok(false);
        }
        self.lost = false;
        self.watcher = None;
        let (sender, events) = mpsc::channel(MOST_EVENTS);
        self.events = events;
        let names: Vec<PathBuf> = links.iter().filter_map(|link| Some(link.folder.join(link.name.as_ref()?))).collect();
        let whole: Vec<PathBuf> =
            links.iter().filter(|link| link.name.is_none()).map(|link| link.folder.clone()).collect();
        let mut folders: Vec<PathBuf> =
            links.iter().filter(|link| link.identity.is_some()).map(|link| link.folder.clone()).collect();
        folders.sort();
        folders.dedup();
        self.armed = links;
        let watched = folders.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let event = event.map_or(Some(Event::Look), |event| said(&event, &names, &whole, &watched));
            if let Some(event) = event {
                // Full: a look is due anyway.
                let _ = sender.try_send(event);
            }
        })?;
        for folder in &folders {
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
        }
        self.watcher = Some(watcher);
        Ok(true)
    }

    /// Forgets what is watched, so that the next [`Folders::arm`] tries again.
    pub(super) fn disarm(&mut self) {
        *self = Self::new();
    }

    /// Waits for something to happen; for ever when nothing can be watched. Safe to cancel.
    pub(super) async fn event(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => self.heard(event),
            None => std::future::pending().await,
        }
    }

    /// An event that has come already.
    pub(super) fn event_now(&mut self) -> Option<Event> {
        let event = self.events.try_recv().ok()?;
        Some(self.heard(event))
    }

    fn heard(&mut self, event: Event) -> Event {
        self.lost |= event == Event::Lost;
        event
    }
}

/// What an event says about the entries that we depend on; `None` when it is not about them, or about reading.
fn said(event: &notify::Event, names: &[PathBuf], whole: &[PathBuf], folders: &[PathBuf]) -> Option<Event> {
    if event.need_rescan() {
        return Some(Event::Look);
    }
    if event.kind.is_remove() && event.paths.iter().any(|path| folders.contains(path)) {
        return Some(Event::Lost);
    }
    let is_in_whole = |path: &PathBuf| path.parent().is_some_and(|folder| whole.iter().any(|whole| whole == folder));
    if !event.paths.iter().any(|path| names.contains(path) || is_in_whole(path)) {
        return None;
    }
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Event::Saved(Saved::Closed)),
        // Our own reading would wake us for ever.
        EventKind::Access(_) => None,
        // That something went says nothing about how what stands there now was saved.
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => Some(Event::Look),
        EventKind::Modify(ModifyKind::Name(_)) => Some(Event::Saved(Saved::Renamed)),
        EventKind::Modify(ModifyKind::Metadata(_)) => Some(Event::Look),
        _ => Some(Event::Saved(Saved::Open)),
    }
}

/// Every folder entry that a path depends on: each symbolic link on its way, and the file itself.
fn links(path: &Path) -> Vec<Link> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut links = Vec::new();
    let mut at = PathBuf::new();
    // What is still to be walked, the nearest last.
    let mut rest: Vec<PathBuf> = parts(&absolute);
    let mut followed = 0;
    while let Some(part) = rest.pop() {
        if part.as_os_str() == ".." {
            at.pop();
            continue;
        }
        if part.has_root() {
            at = part;
            continue;
        }
        let whole = at.join(&part);
        let target = std::fs::read_link(&whole).ok().filter(|_| followed < MOST_LINKS);
        if target.is_some() || rest.is_empty() {
            links.push(Link { identity: Identity::of_folder(&at), folder: at.clone(), name: Some(part) });
        }
        match target {
            Some(target) => {
                followed += 1;
                rest.extend(parts(&target));
            }
            None => at = whole,
        }
    }
    links
}

/// The parts of a path, the first last.
fn parts(path: &Path) -> Vec<PathBuf> {
    let own = |component: Component<'_>| (component != Component::CurDir).then(|| component.as_os_str().to_owned());
    let mut parts: Vec<PathBuf> =
        path.components().filter_map(own).map(|part| PathBuf::from(AsRef::<OsStr>::as_ref(&part))).collect();
    parts.reverse();
    parts
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_link_on_the_way_is_watched_in_its_own_folder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("v1")).unwrap();
        std::fs::write(root.join("v1/routes.toml"), "").unwrap();
        symlink("v1", root.join("..data")).unwrap();
        symlink("..data/routes.toml", root.join("routes.toml")).unwrap();
        let found: Vec<PathBuf> = links(&root.join("./routes.toml"))
            .iter()
            .map(|link| link.folder.join(link.name.as_ref().unwrap()))
            .collect();
        assert_eq!(found, [root.join("routes.toml"), root.join("..data"), root.join("v1/routes.toml")]);
    }

    #[test]
    fn links_in_a_circle_come_to_an_end() {
        let dir = tempfile::tempdir().unwrap();
        symlink("b", dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        assert!(links(&dir.path().join("a")).len() <= MOST_LINKS + 1);
    }
}
