//! Where a device keeps its bundles: `/var/lib/visiond-models` unless another folder is named. It belongs to root, unlike
//! `/var/lib/visiond`: the service, which reads what strangers send, can read its models and not change them.
//!
//! ```text
//! street/7/manifest.toml, model.onnx, ...   version 7, as it was signed
//! street/7/model -> model.onnx              the model of this machine
//! street/7/model.toml -> card.toml          its card
//! street/7/model.json -> orin.engine.json   its sidecar, if it is an engine
//! street/7/built/model.engine               the engine that was built of it on this machine: then `model` leads to it
//! street/current -> 7                       what `bundle = "street"` is
//! street/previous -> 6                      what `visiond bundle rollback` goes back to
//! street/newest                             the newest version that was ever installed
//! street/refused.toml                       versions that are not tried again, and why
//! street/rollout.toml                       what is done about newer versions: see [`rollout`](crate::rollout)
//! street/follow/                            what fetches and watches them: see [`Following`]
//! ```
//!
//! Every step leaves the old version or the new one, whole: files are synced before the folder gets its name, and `current` changes
//! by one rename. What a cut installation leaves is removed by the next one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock, statvfs};
use visiond_ground::atomic_write::write_atomically;

use super::chosen_model::choose;
use super::error::BundleError;
use super::files::{create_folder, create_if_missing, read_bounded_text, remove_if_there};
use super::following::{FOLLOW, Following};
use super::manifest::{BUILT, MODEL, Manifest, check_name};
use super::owner;
use super::read::{Bundle, MAX_MANIFEST, sync_folders};
use super::rollout::{ROLLOUT, Rollout};
use super::signature::{Signer, TrustedKeys, signer};

/// The default folder.
pub const FOLDER: &str = "/var/lib/visiond-models";

const CURRENT: &str = "current";
const PREVIOUS: &str = "previous";
const NEWEST: &str = "newest";
const REFUSED: &str = "refused.toml";
/// Where a bundle is unpacked and proven.
const CANDIDATE: &str = "candidate";
const LOCK: &str = ".lock";

/// The engine that was built on this device, and the record of the build, which `visiond build` names after it.
const ENGINE: &str = "model.engine";

/// The most bytes of a signature, of the refused versions, and of the newest one: a larger file is broken.
const MAX_SMALL: u64 = 1 << 20;

/// Bytes to leave free on the disk.
const RESERVE_BYTES: u64 = 64 << 20;

/// The folder of a device's bundles.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// An installed version.
#[derive(Debug, Clone, PartialEq)]
pub struct Installed {
    /// Its manifest.
    pub manifest: Manifest,
    /// The number of the key that signed it, if its signature can be read.
    pub signed_by: Option<String>,
    /// Its folder.
    pub folder: PathBuf,
}

impl Installed {
    /// Returns the path of its model for this machine.
    pub fn model(&self) -> PathBuf {
        self.folder.join(MODEL)
    }

    /// Returns the path of its settings; `None` if it has a model instead.
    pub fn settings(&self) -> Option<PathBuf> {
        self.manifest.settings.as_ref().map(|file| self.folder.join(file))
    }

    /// Reads the version in `folder`.
    fn read(folder: PathBuf) -> Result<Self, BundleError> {
        let path = folder.join(super::MANIFEST);
        let text = read_bounded_text(&path, MAX_MANIFEST).map_err(BundleError::io("read", &path))?;
        let manifest = Manifest::parse(&text).map_err(|reason| BundleError::Manifest { path, reason })?;
        let signature = read_bounded_text(&folder.join(super::SIGNATURE), MAX_SMALL).ok();
        let signed_by = signature.and_then(|text| signer(&folder, &text).ok()).map(|signer| signer.id);
        Ok(Self { manifest, signed_by, folder })
    }
}

/// What is current after a change.
#[derive(Debug)]
pub struct Switched {
    /// The current version; `None` after a rollback of the first settings.
    pub now: Option<Installed>,
    /// What could not be noted or removed after the switch.
    pub left: Option<BundleError>,
}

/// What the store has of a bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct Versions {
    /// The name of the bundle.
    pub name: String,
    /// What cameras use.
    pub current: Option<Installed>,
    /// What can be gone back to.
    pub previous: Option<Installed>,
    /// The newest version that was ever current.
    pub newest: Option<u64>,
    /// Versions that are not tried again, and why.
    pub refused: BTreeMap<u64, String>,
}

impl Versions {
    /// Returns the numbers of the current and the previous version.
    pub fn numbers(&self) -> [Option<u64>; 2] {
        [&self.current, &self.previous].map(|it| it.as_ref().map(|it| it.manifest.version))
    }
}

/// A bundle that is unpacked and waits for its proof. Without [`Self::accept`] it is removed.
#[derive(Debug)]
pub struct Candidate {
    /// What it is.
    pub manifest: Manifest,
    /// Who signed it.
    pub signer: Signer,
    /// Its folder.
    pub folder: PathBuf,
    place: Place,
}

/// The folder of one bundle, locked for changes.
#[derive(Debug)]
struct Place {
    folder: PathBuf,
    _lock: File,
}

impl Store {
    /// Returns the store in `folder`, which need not exist.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the path of the current model of a bundle, whether it is installed or not.
    pub fn model(&self, name: &str) -> PathBuf {
        self.folder.join(name).join(CURRENT).join(MODEL)
    }

    /// Returns the folder of what is installed of a bundle.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the current version of a bundle. Its folder stays as it is until two other versions are installed, or the same one again.
    ///
    /// # Errors
    /// If none is installed, or its manifest cannot be read.
    pub fn current(&self, name: &str) -> Result<Installed, BundleError> {
        let not_installed = || BundleError::NotInstalled { name: name.to_owned(), folder: self.folder.clone() };
        // A name with slashes would lead out of the store.
        check_name(name).map_err(|_| not_installed())?;
        let folder = self.folder(name);
        let link = folder.join(CURRENT);
        match fs::read_link(&link) {
            Ok(version) => Installed::read(folder.join(version)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(not_installed()),
            Err(error) => Err(BundleError::io("read", &link)(error)),
        }
    }

    /// Returns which folder the current version of a bundle has and since when; `None` if that cannot be read.
    pub fn current_since(&self, name: &str) -> Option<(PathBuf, SystemTime)> {
        let link = self.folder(name).join(CURRENT);
        let since = fs::symlink_metadata(&link).and_then(|metadata| metadata.modified()).ok()?;
        Some((self.folder(name).join(fs::read_link(&link).ok()?), since))
    }

    /// Returns what is installed or followed, by name.
    ///
    /// # Errors
    /// If the folder cannot be read. Without a folder, nothing is installed.
    pub fn list(&self) -> Result<Vec<Versions>, BundleError> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(BundleError::io("read", &self.folder))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(BundleError::io("read", &self.folder))?;
            // A file that somebody has put there is no bundle.
            if !entry.path().is_dir() {
                continue;
            }
            names.extend(entry.file_name().to_str().filter(|name| check_name(name).is_ok()).map(str::to_owned));
        }
        names.sort();
        let found = names.iter().map(|name| self.versions(name)).filter(|found| match found {
            // A folder that something else put there.
            Ok(it) => {
                let is_followed = || Rollout::read(&self.folder(&it.name)).is_some();
                it.current.is_some() || !it.refused.is_empty() || is_followed()
            }
            Err(_) => true,
        });
        found.collect()
    }

    /// Returns what is installed of one bundle.
    ///
    /// # Errors
    /// If its files cannot be read.
    pub fn versions(&self, name: &str) -> Result<Versions, BundleError> {
        let folder = self.folder.join(name);
        let current = installed(&folder, CURRENT);
        // A cut between the two links leaves both at the same version.
        let previous = installed(&folder, PREVIOUS).filter(|it| current.as_ref() != Some(it));
        Ok(Versions { name: name.to_owned(), current, previous, newest: newest(&folder)?, refused: refused(&folder)? })
    }

    /// Unpacks a bundle beside the versions that are installed. `again` allows a version that was refused here, or is not newer than the
    /// newest.
    ///
    /// # Errors
    /// If the bundle is not to be trusted, is damaged, does not fit on the disk, or is not new.
    pub fn unpack(&self, path: &Path, keys: &TrustedKeys, again: bool) -> Result<Candidate, BundleError> {
        let (bundle, signer) = Bundle::open_trusted(path, keys)?;
        let manifest = bundle.manifest();
        let (name, version) = (manifest.name.clone(), manifest.version);
        if !manifest.suits_this_visiond() {
            let needed = manifest.minimum_visiond.clone().unwrap_or_default();
            return Err(BundleError::TooOld { name, version, needed });
        }
        let place = self.lock(&name)?;
        self.check_kind(manifest)?;
        if !again {
            if installed(&place.folder, CURRENT).is_some_and(|it| it.manifest == *manifest) {
                return Err(BundleError::Installed { name, version });
            }
            if let Some(reason) = refused(&place.folder)?.remove(&version) {
                return Err(BundleError::Refused { name, version, reason });
            }
            if let Some(newest) = newest(&place.folder)?.filter(|newest| version <= *newest) {
                return Err(BundleError::NotNewer { name, version, newest });
            }
        }
        let folder = place.folder.join(CANDIDATE);
        place.clean()?;
        check_space(&place.folder, manifest.installed_bytes())?;
        // From here on, whatever happens, the folder is removed unless the candidate is accepted.
        let candidate = Candidate { manifest: manifest.clone(), signer, folder, place };
        bundle.unpack(&candidate.folder)?;
        Ok(candidate)
    }

    /// Checks that a bundle has the same as the installed version of its name: settings, or a model. A configuration that names the
    /// one would be invalid with the other.
    ///
    /// # Errors
    /// [`BundleError::OtherKind`].
    pub fn check_kind(&self, manifest: &Manifest) -> Result<(), BundleError> {
        let folder = self.folder(&manifest.name);
        let Some(before) = [CURRENT, PREVIOUS].iter().find_map(|link| installed(&folder, link)) else { return Ok(()) };
        if before.manifest.settings.is_some() == manifest.settings.is_some() {
            return Ok(());
        }
        Err(BundleError::OtherKind {
            name: manifest.name.clone(),
            version: manifest.version,
            has: manifest.kind(),
            installed: before.manifest.version,
            installed_has: before.manifest.kind(),
        })
    }

    /// Puts the current version beside itself, so that its model is chosen, and its engine built, once more: after an update of
    /// TensorRT, say.
    ///
    /// # Errors
    /// If none is installed, or its files or the folder cannot be used.
    pub fn unpack_current(&self, name: &str) -> Result<Candidate, BundleError> {
        // Before the lock, which makes the folder.
        self.current(name)?;
        let place = self.lock(name)?;
        let Installed { manifest, folder: from, .. } = self.current(name)?;
        let signature = from.join(super::SIGNATURE);
        let text = read_bounded_text(&signature, MAX_SMALL).map_err(BundleError::io("read", &signature))?;
        let signer = signer(&signature, &text)?;
        let folder = place.folder.join(CANDIDATE);
        place.clean()?;
        check_space(&place.folder, manifest.installed_bytes() - manifest.total_bytes())?;
        let candidate = Candidate { manifest, signer, folder, place };
        let to = &candidate.folder;
        create_folder(to).map_err(BundleError::io("create", to))?;
        let files = candidate.manifest.files.iter().map(|file| file.path.as_str());
        for name in files.chain([super::MANIFEST, super::SIGNATURE]) {
            let (from, to) = (from.join(name), to.join(name));
            let above = to.parent().unwrap_or(&candidate.folder);
            fs::create_dir_all(above).map_err(BundleError::io("create", above))?;
            // Nothing writes into a file of the store, so both versions may have the same.
            fs::hard_link(&from, &to).map_err(BundleError::io("link", &from))?;
        }
        sync_folders(to).map_err(BundleError::io("sync", to))?;
        Ok(candidate)
    }

    /// Goes back to the previous version; the current one is then not tried again. Before the first settings, there were none. With `expected`, only if that is the current one,
    /// which is also noted as refused if there is no previous one.
    ///
    /// # Errors
    /// If there is none, another version is current than is expected, or the link cannot be replaced. Then the version is as before.
    pub fn roll_back(&self, name: &str, expected: Option<u64>, reason: &str) -> Result<Switched, BundleError> {
        if check_name(name).is_err() || !self.folder.join(name).is_dir() {
            return Err(BundleError::NotInstalled { name: name.to_owned(), folder: self.folder.clone() });
        }
        let place = self.lock(name)?;
        let versions = self.versions(name)?;
        if let Some(version) = expected
            && versions.current.as_ref().is_none_or(|current| current.manifest.version != version)
        {
            return Err(BundleError::NotCurrent { name: name.to_owned(), version });
        }
        // Without settings, a device has its configuration file; without a model, it has nothing.
        let is_settings = versions.current.as_ref().is_some_and(|current| current.settings().is_some());
        if versions.previous.is_none() && !is_settings {
            // It stays in use, and is known to be bad.
            if let Some(version) = expected {
                place.refuse(version, reason)?;
            }
            return Err(BundleError::NothingBefore { name: name.to_owned() });
        }
        // Before the switch, so that a cut after it cannot let an older version in; but a full disk must not keep a bad one.
        let noted = match &versions.current {
            Some(current) => {
                place.note_newest(current.manifest.version).and(place.refuse(current.manifest.version, reason))
            }
            None => Ok(()),
        };
        let now = versions.previous;
        match &now {
            Some(now) => place.point(CURRENT, now.folder.file_name().unwrap_or_default().as_ref())?,
            None => {
                // What was noted is all that keeps the version out from here on.
                if let Err(error) = noted {
                    return Err(error);
                }
                remove_if_there(&place.folder.join(CURRENT))?;
                place.sync()?;
            }
        }
        let left = noted.and(remove_if_there(&place.folder.join(PREVIOUS))).and(place.clean()).err();
        Ok(Switched { now, left })
    }

    /// Lets a version that was gone back from be installed again, because something else was at fault.
    ///
    /// # Errors
    /// If another process changes the bundle, or the folder cannot be written.
    pub fn forgive(&self, name: &str, version: u64) -> Result<(), BundleError> {
        let place = self.lock(name)?;
        place.forgive(version)?;
        let current = installed(&place.folder, CURRENT).map(|it| it.manifest.version);
        match current {
            Some(current) if current < version && written_newest(&place.folder)? == Some(version) => {
                place.write(NEWEST, &format!("{current}\n"))
            }
            _ => Ok(()),
        }
    }

    /// Begins to follow a bundle, whose name is valid: to fetch newer versions.
    ///
    /// # Errors
    /// If another process follows it, or the folder cannot be written.
    pub fn follow(&self, name: &str) -> Result<Following, BundleError> {
        let folder = self.create_folder_of(name)?;
        Following::lock(create_if_missing(folder.join(FOLLOW))?)
    }

    /// Makes the folder of a bundle, and returns it.
    fn create_folder_of(&self, name: &str) -> Result<PathBuf, BundleError> {
        let folder = self.folder.join(name);
        owner::check(&folder)?;
        create_if_missing(self.folder.clone())?;
        create_if_missing(folder)
    }

    /// Locks the folder of a bundle, and makes it.
    fn lock(&self, name: &str) -> Result<Place, BundleError> {
        let folder = self.create_folder_of(name)?;
        let path = folder.join(LOCK);
        // Every user who can open it could hold the lock.
        let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(BundleError::io("open", &path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Place { folder, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(BundleError::Busy(folder)),
            Err(error) => Err(BundleError::io("lock", &path)(error.into())),
        }
    }
}

impl Candidate {
    /// Chooses the model for this machine, among those of the manifest: links it and its card under names that do not differ from
    /// version to version, and returns its path.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn choose(&self, model: &str) -> Result<PathBuf, BundleError> {
        self.remove_engine()?;
        self.link(model, self.manifest.has_sidecar(model))
    }

    /// Makes the folder of an engine that is built of one of the models, in the place of any other, and returns the engine's path.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn prepare_engine(&self) -> Result<PathBuf, BundleError> {
        self.remove_engine()?;
        let folder = self.folder.join(BUILT);
        create_folder(&folder).map_err(BundleError::io("create", &folder))?;
        Ok(folder.join(ENGINE))
    }

    /// Chooses the engine that was built where [`Self::prepare_engine`] said, as [`Self::choose`] does a model of the manifest.
    ///
    /// # Errors
    /// If the engine is not there, or the folder cannot be written.
    pub fn choose_engine(&self) -> Result<PathBuf, BundleError> {
        let folder = self.folder.join(BUILT);
        let entries = fs::read_dir(&folder).map_err(BundleError::io("read", &folder))?;
        for entry in entries {
            let path = entry.map_err(BundleError::io("read", &folder))?.path();
            // The service must read it, whatever the mask of the builder was.
            let is_folder = path.is_dir();
            let mode = fs::Permissions::from_mode(if is_folder { 0o755 } else { 0o644 });
            let synced = fs::set_permissions(&path, mode).and_then(|()| File::open(&path)).and_then(|it| it.sync_all());
            synced.map_err(BundleError::io("sync", &path))?;
        }
        sync_folders(&folder).map_err(BundleError::io("sync", &folder))?;
        self.link(&format!("{BUILT}/{ENGINE}"), true)
    }

    /// Removes an engine that was built here.
    fn remove_engine(&self) -> Result<(), BundleError> {
        let folder = self.folder.join(BUILT);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BundleError::io("remove", &folder)(error)),
            _ => Ok(()),
        }
    }

    fn link(&self, model: &str, has_sidecar: bool) -> Result<PathBuf, BundleError> {
        choose(&self.folder, self.manifest.card.as_deref(), model, has_sidecar)
    }

    /// Makes it the current version, once a model is chosen, and keeps the current one as the previous; older ones are removed.
    ///
    /// # Errors
    /// If the folder cannot be written. Then the version is as before.
    pub fn accept(self) -> Result<Switched, BundleError> {
        let (place, version) = (&self.place, self.manifest.version);
        // The same version again gets another folder, so that there is no moment without a whole one.
        let is_free = |name: &String| !place.folder.join(name).exists();
        let names = (2..).map(|nth: u32| format!("{version}.{nth}"));
        let name = [version.to_string()].into_iter().chain(names).find(is_free).unwrap_or_default();
        let folder = place.folder.join(&name);
        fs::rename(&self.folder, &folder).map_err(BundleError::io("move", &self.folder))?;
        place.sync()?;
        place.forgive(version)?;
        let before = installed(&place.folder, CURRENT).filter(|before| before.manifest.version != version);
        if let Some(before) = before.as_ref().and_then(|before| before.folder.file_name()) {
            place.point(PREVIOUS, before.as_ref())?;
        }
        place.point(CURRENT, name.as_ref())?;
        // `newest` also looks at the link, so a cut before this is no loss.
        let left = place.note_newest(version).and(place.clean()).err();
        let signed_by = Some(self.signer.id.clone());
        Ok(Switched { now: Some(Installed { manifest: self.manifest.clone(), signed_by, folder }), left })
    }

    /// Refuses it, so that it is not tried again, and removes it.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn refuse(self, reason: &str) -> Result<(), BundleError> {
        self.place.refuse(self.manifest.version, reason)
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // Gone if it was accepted; otherwise the next installation removes what cannot be removed now.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Place {
    /// Points a link to a version's folder, by one rename.
    fn point(&self, name: &str, version: &Path) -> Result<(), BundleError> {
        let (link, new) = (self.folder.join(name), self.folder.join(format!(".{name}.new")));
        remove_if_there(&new)?;
        symlink(version, &new).map_err(BundleError::io("create", &new))?;
        fs::rename(&new, &link).map_err(BundleError::io("replace", &link))?;
        self.sync()
    }

    fn write(&self, name: &str, text: &str) -> Result<(), BundleError> {
        let path = self.folder.join(name);
        let written = write_atomically(&path, text.as_bytes());
        // Every user may list versions, whatever the mask of this process is.
        let written = written.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o644)));
        written.map_err(BundleError::io("write", &path))
    }

    /// Notes that a version was installed.
    fn note_newest(&self, version: u64) -> Result<(), BundleError> {
        let is_newer = written_newest(&self.folder)?.is_none_or(|newest| version > newest);
        if is_newer { self.write(NEWEST, &format!("{version}\n")) } else { Ok(()) }
    }

    fn refuse(&self, version: u64, reason: &str) -> Result<(), BundleError> {
        let mut all = refused(&self.folder)?;
        all.insert(version, reason.to_owned());
        self.write_refused(&all)
    }

    fn forgive(&self, version: u64) -> Result<(), BundleError> {
        let mut all = refused(&self.folder)?;
        if all.remove(&version).is_none() { Ok(()) } else { self.write_refused(&all) }
    }

    fn write_refused(&self, all: &BTreeMap<u64, String>) -> Result<(), BundleError> {
        let keyed: BTreeMap<String, &String> =
            all.iter().map(|(version, reason)| (version.to_string(), reason)).collect();
        // Texts can always be written as TOML.
        self.write(REFUSED, &toml::to_string(&keyed).unwrap_or_default())
    }

    /// Removes what is neither a version that a link names nor a file of the store: older versions, and what cut installations have
    /// left.
    fn clean(&self) -> Result<(), BundleError> {
        let mut kept: Vec<PathBuf> =
            [CURRENT, PREVIOUS].iter().filter_map(|name| fs::read_link(self.folder.join(name)).ok()).collect();
        kept.extend([CURRENT, PREVIOUS, NEWEST, REFUSED, ROLLOUT, FOLLOW, LOCK].map(PathBuf::from));
        let read = |error| BundleError::io("read", &self.folder)(error);
        for entry in fs::read_dir(&self.folder).map_err(read)? {
            let entry = entry.map_err(read)?;
            if kept.iter().any(|kept| *kept == *entry.file_name()) {
                continue;
            }
            let path = entry.path();
            // Links are no folders here.
            let is_folder = entry.file_type().map_err(read)?.is_dir();
            let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(BundleError::io("remove", &path))?;
        }
        self.sync()
    }

    fn sync(&self) -> Result<(), BundleError> {
        File::open(&self.folder).and_then(|it| it.sync_all()).map_err(BundleError::io("sync", &self.folder))
    }
}

/// Returns the version that a link names; `None` without the link, or if somebody has removed or broken what it names, from which it
/// must be possible to go back.
fn installed(folder: &Path, link: &str) -> Option<Installed> {
    Installed::read(folder.join(fs::read_link(folder.join(link)).ok()?)).ok()
}

/// Returns the versions that are not tried again.
fn refused(folder: &Path) -> Result<BTreeMap<u64, String>, BundleError> {
    let Some(text) = read_text(&folder.join(REFUSED))? else { return Ok(BTreeMap::new()) };
    // A file that somebody has broken refuses nothing.
    let keyed: BTreeMap<String, String> = toml::from_str(&text).unwrap_or_default();
    Ok(keyed.into_iter().filter_map(|(version, reason)| Some((version.parse().ok()?, reason))).collect())
}

/// Returns the newest version that was ever current.
fn newest(folder: &Path) -> Result<Option<u64>, BundleError> {
    let linked = installed(folder, CURRENT).map(|it| it.manifest.version);
    Ok(written_newest(folder)?.max(linked))
}

fn written_newest(folder: &Path) -> Result<Option<u64>, BundleError> {
    Ok(read_text(&folder.join(NEWEST))?.and_then(|text| text.trim().parse().ok()))
}

fn read_text(path: &Path) -> Result<Option<String>, BundleError> {
    match read_bounded_text(path, MAX_SMALL) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(BundleError::io("read", path)(error)),
    }
}

/// Checks that `bytes` fit beside what is there, with a reserve for everybody else.
pub(crate) fn check_space(folder: &Path, bytes: u64) -> Result<(), BundleError> {
    let found = statvfs(folder).map_err(|error| BundleError::io("ask for the size of", folder)(error.into()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let needed = bytes.saturating_add(RESERVE_BYTES);
    if needed <= free {
        return Ok(());
    }
    Err(BundleError::NoSpace { folder: folder.to_owned(), needed_mib: needed.div_ceil(1 << 20), free_mib: free >> 20 })
}
