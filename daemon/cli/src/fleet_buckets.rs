//! The key-value buckets and the object store of a fleet: for the commands of operators, and for devices.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::Notify;
use visiond_bundle::{BundleSource, Piece, SourceError, Take};
use visiond_fleet::{
    BUNDLES_STORE, DESIRED_BUCKET, Desired, Pin, REPORTED_BUCKET, RecordError, Reported, check_name, device_key,
    group_key, parse_device_key, parse_group_key,
};
use visiond_nats::kv::{Bucket, NewBucket};
use visiond_nats::object::{NewStore, ObjectInfo, Position, Store};
use visiond_nats::wire::random_digits;
use visiond_nats::{Client, NatsError, Options};
use visiond_system::exit::{Exit, ExitError};

use crate::output::complain;

/// The most devices whose broken reports are named.
const MOST_BROKEN: usize = 3;

/// The age from which chunks without an object were left by a push that was interrupted.
const LEFTOVER_AFTER: Duration = Duration::from_secs(3600);

/// How long a replica may take to get a record that another one has, and how often it is asked meanwhile.
const REPLICA_LAG: Duration = Duration::from_secs(10);
const REPLICA_PAUSE: Duration = Duration::from_millis(50);

/// A connection to the servers of a fleet.
pub struct Buckets {
    runtime: Runtime,
    client: Client,
    /// Opened by the first request that needs it.
    desired: Option<Bucket>,
    reported: Option<Bucket>,
    bundles: Option<Store>,
    /// Where the last reads ended.
    positions: BTreeMap<String, Position>,
    /// Devices whose broken reports were named.
    said: BTreeSet<String>,
    /// Whether an operator should know what is wrong with a bucket.
    warns: bool,
    /// The newest revisions of groups' records that this connection has seen, by key.
    revisions: BTreeMap<String, u64>,
}

/// An object of the store.
#[derive(Debug, Clone)]
pub struct StoredObject {
    /// Its name.
    pub name: String,
    /// Its size, in bytes.
    pub bytes: u64,
    /// When it was stored, in seconds since 1970.
    pub stored_unix_s: u64,
}

/// A device that has reported.
#[derive(Debug, Clone)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// What it reports.
    pub reported: Reported,
    /// When the report arrived at the server, in seconds since 1970.
    pub seen_unix_s: u64,
}

/// A record, or why it cannot be read.
pub type Record<T> = Result<T, RecordError>;

impl Buckets {
    /// Connects.
    ///
    /// # Errors
    /// If no server can be reached, or the login is refused.
    pub fn open(options: Options) -> Result<Self, NatsError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(NatsError::System)?;
        let client = runtime.block_on(Client::connect(options))?;
        Ok(Self {
            runtime,
            client,
            desired: None,
            reported: None,
            bundles: None,
            positions: BTreeMap::new(),
            said: BTreeSet::new(),
            warns: false,
            revisions: BTreeMap::new(),
        })
    }

    /// Warns from now on of buckets in which devices could do harm.
    #[must_use]
    pub fn warning(self) -> Self {
        Self { warns: true, ..self }
    }

    /// Makes the buckets that do not exist, each on so many servers; returns the stream of each, and on how many servers it is.
    ///
    /// # Errors
    /// If one cannot be made.
    pub fn create(&mut self, replicas: u8) -> Result<Vec<(String, u8)>, NatsError> {
        let (client, warns) = (&mut self.client, self.warns);
        self.runtime.block_on(async {
            let mut streams = Vec::new();
            for (name, description) in
                [(DESIRED_BUCKET, "versions that devices should use"), (REPORTED_BUCKET, "what devices use and do")]
            {
                let new = NewBucket { description, replicas, history: 1, max_bytes: 0 };
                let bucket = Bucket::create_if_missing(client, name, &new).await?;
                warn_of_rollup(&bucket, warns);
                streams.push((bucket.stream().to_owned(), bucket.replicas()));
            }
            let bundles = NewStore { description: "bundles of models", replicas, max_bytes: 0 };
            let store = Store::create_if_missing(client, BUNDLES_STORE, &bundles).await?;
            streams.push((store.stream().to_owned(), store.replicas()));
            Ok(streams)
        })
    }

    /// Reads what a group should use, with the revision of the record. A record that is older than one that this connection has seen
    /// comes from a replica that lags, so it is asked again. If it stays, the servers have come back without their newest changes.
    ///
    /// # Errors
    /// If no server answers.
    pub fn desired(&mut self, group: &str, bundle: &str) -> Result<Option<(Record<Desired>, u64)>, NatsError> {
        let key = group_key(group, bundle);
        let bucket = self.desired_bucket()?;
        let known = self.revisions.get(&key).copied().unwrap_or(0);
        let get_by = Instant::now() + REPLICA_LAG;
        loop {
            let entry = self.runtime.block_on(bucket.get(&mut self.client, &key))?;
            let revision = entry.as_ref().map_or(0, |entry| entry.revision);
            if revision < known && Instant::now() < get_by {
                thread::sleep(REPLICA_PAUSE);
                continue;
            }
            let Some(entry) = entry else {
                // Somebody has deleted it, or the servers came back empty.
                self.revisions.remove(&key);
                return Ok(None);
            };
            if revision < known {
                complain(&format!(
                    "{key} is older than it was, as after a restore from a backup: goes on with the record that is there"
                ));
            }
            self.revisions.insert(key.clone(), revision);
            return Ok(Some((Desired::parse(&key, &entry.value), revision)));
        }
    }

    /// Writes what a group should use, if the record still has this revision, or if there is none.
    ///
    /// # Errors
    /// If somebody has changed the record meanwhile, or no server answers.
    pub fn write_desired(
        &mut self,
        group: &str,
        bundle: &str,
        desired: &Desired,
        revision: Option<u64>,
    ) -> Result<(), NatsError> {
        let (key, value) = (group_key(group, bundle), desired.to_json());
        let bucket = self.desired_bucket()?;
        let client = &mut self.client;
        let written = self.runtime.block_on(async {
            match revision {
                Some(revision) => bucket.update(client, &key, &value, revision).await,
                None => bucket.create(client, &key, &value).await,
            }
        })?;
        self.revisions.insert(key, written);
        Ok(())
    }

    /// Reads what all groups should use, by group and bundle.
    ///
    /// # Errors
    /// If no server answers.
    pub fn all_desired(&mut self) -> Result<BTreeMap<(String, String), Record<Desired>>, NatsError> {
        let mut all = BTreeMap::new();
        let bucket = self.desired_bucket()?;
        self.runtime.block_on(bucket.entries(&mut self.client, ">", |key, entry, _| {
            if let Some((group, bundle)) = parse_group_key(key) {
                all.insert((group.to_owned(), bundle.to_owned()), Desired::parse(key, &entry.value));
            }
            ControlFlow::Continue(())
        }))?;
        Ok(all)
    }

    /// Reads the names of devices that are pinned, by the names of bundles.
    ///
    /// # Errors
    /// If no server answers.
    pub fn pinned(&mut self) -> Result<BTreeMap<String, BTreeSet<String>>, NatsError> {
        let mut all = BTreeMap::<_, BTreeSet<_>>::new();
        for (device, bundle) in self.pins()?.into_keys() {
            all.entry(bundle).or_default().insert(device);
        }
        Ok(all)
    }

    /// Reads all pins, by device and bundle.
    ///
    /// # Errors
    /// If no server answers.
    pub fn pins(&mut self) -> Result<BTreeMap<(String, String), Record<Pin>>, NatsError> {
        let mut all = BTreeMap::new();
        let bucket = self.desired_bucket()?;
        self.runtime.block_on(bucket.entries(&mut self.client, "device.>", |key, entry, _| {
            if let Some((device, bundle)) = parse_device_key(key) {
                all.insert((device.to_owned(), bundle.to_owned()), Pin::parse(key, &entry.value));
            }
            ControlFlow::Continue(())
        }))?;
        Ok(all)
    }

    /// Reads the pin of a device.
    ///
    /// # Errors
    /// If no server answers.
    pub fn pin(&mut self, device: &str, bundle: &str) -> Result<Option<Record<Pin>>, NatsError> {
        let key = device_key(device, bundle);
        let bucket = self.desired_bucket()?;
        let entry = self.runtime.block_on(bucket.get(&mut self.client, &key))?;
        Ok(entry.map(|entry| Pin::parse(&key, &entry.value)))
    }

    /// Pins a device.
    ///
    /// # Errors
    /// If no server answers.
    pub fn put_pin(&mut self, device: &str, bundle: &str, pin: &Pin) -> Result<(), NatsError> {
        let (key, value) = (device_key(device, bundle), pin.to_json());
        let bucket = self.desired_bucket()?;
        self.runtime.block_on(bucket.put(&mut self.client, &key, &value)).map(drop)
    }

    /// Removes a pin; returns whether there was one.
    ///
    /// # Errors
    /// If no server answers.
    pub fn delete_pin(&mut self, device: &str, bundle: &str) -> Result<bool, NatsError> {
        let bucket = self.desired_bucket()?;
        self.delete(&bucket, &device_key(device, bundle))
    }

    /// Reads what all devices report, by their names.
    ///
    /// # Errors
    /// If no server answers.
    pub fn reported(&mut self) -> Result<BTreeMap<String, Device>, NatsError> {
        let bucket = self.reported_bucket()?;
        let (mut devices, said) = (BTreeMap::new(), &mut self.said);
        self.runtime.block_on(bucket.entries(&mut self.client, ">", |key, entry, seen_unix_s| {
            match Reported::parse(key, &entry.value) {
                // One that changes meanwhile comes twice.
                Ok(reported) if check_name(key).is_ok() => {
                    devices.insert(key.to_owned(), Device { name: key.to_owned(), reported, seen_unix_s });
                }
                Ok(_) => {}
                Err(error) => {
                    if said.len() < MOST_BROKEN && said.insert(key.to_owned()) {
                        complain(&error.to_string());
                    }
                }
            }
            ControlFlow::Continue(())
        }))?;
        Ok(devices)
    }

    /// Writes what a device reports.
    ///
    /// # Errors
    /// If no server answers.
    pub fn put_reported(&mut self, device: &str, reported: &Reported) -> Result<(), NatsError> {
        let bucket = self.reported_bucket()?;
        self.runtime.block_on(bucket.put(&mut self.client, device, &reported.to_json())).map(drop)
    }

    /// Removes the report of a device; returns whether there was one.
    ///
    /// # Errors
    /// If no server answers.
    pub fn delete_reported(&mut self, device: &str) -> Result<bool, NatsError> {
        let bucket = self.reported_bucket()?;
        self.delete(&bucket, device)
    }

    /// Returns the description of an object.
    ///
    /// # Errors
    /// If there is none of this name, or no server answers.
    pub fn object(&mut self, path: &str) -> Result<ObjectInfo, NatsError> {
        let store = self.store()?;
        let info = self.runtime.block_on(store.info(&mut self.client, path))?;
        info.ok_or_else(|| NatsError::MissingObject {
            servers: self.client.servers().to_owned(),
            bucket: BUNDLES_STORE.to_owned(),
            name: path.to_owned(),
        })
    }

    /// Returns whether all of an object is in the store.
    ///
    /// # Errors
    /// If no server answers.
    pub fn is_complete(&mut self, info: &ObjectInfo) -> Result<bool, NatsError> {
        let store = self.store()?;
        self.runtime.block_on(store.is_complete(&mut self.client, info))
    }

    /// Gives bytes of an object to `take`, in order, until it breaks.
    ///
    /// # Errors
    /// If the object was replaced meanwhile, or no server answers.
    pub fn read_object(
        &mut self,
        info: &ObjectInfo,
        range: Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), NatsError> {
        if range.end > info.size {
            let (bucket, name) = (BUNDLES_STORE.to_owned(), info.name.clone());
            let what = format!("has {} bytes, and {} were expected", info.size, range.end);
            return Err(NatsError::BrokenObject { bucket, name, what });
        }
        let store = self.store()?;
        let position = self.positions.entry(info.nuid.clone()).or_default();
        self.runtime.block_on(store.read_range(&mut self.client, info, range, position, take))
    }

    /// Puts a file into the store. `progress` gets the bytes that are there.
    ///
    /// # Errors
    /// `Err(Ok(_))` if the file cannot be read; `Err(Err(_))` if no server takes it.
    pub fn put_file(
        &mut self,
        path: &str,
        file: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Result<io::Error, NatsError>> {
        let mut opened = File::open(file).map_err(Ok)?;
        let store = self.store().map_err(Err)?;
        self.runtime.block_on(store.put(&mut self.client, path, &mut opened, progress)).map(drop).map_err(Err)
    }

    /// Puts a small object into the store.
    ///
    /// # Errors
    /// If no server takes it.
    pub fn put_bytes(&mut self, path: &str, mut bytes: &[u8]) -> Result<(), NatsError> {
        let store = self.store()?;
        self.runtime.block_on(store.put(&mut self.client, path, &mut bytes, &mut |_| {})).map(drop)
    }

    /// Returns the objects in the store.
    ///
    /// # Errors
    /// If no server answers.
    pub fn objects(&mut self) -> Result<Vec<StoredObject>, NatsError> {
        let store = self.store()?;
        let mut all = BTreeMap::new();
        self.runtime.block_on(store.list(&mut self.client, |ObjectInfo { name, size, .. }, stored_unix_s| {
            // One that changes meanwhile comes twice.
            all.insert(name.clone(), StoredObject { name, bytes: size, stored_unix_s });
            ControlFlow::Continue(())
        }))?;
        Ok(all.into_values().collect())
    }

    /// Deletes an object; returns whether there was one.
    ///
    /// # Errors
    /// If no server answers.
    pub fn delete_object(&mut self, path: &str) -> Result<bool, NatsError> {
        let store = self.store()?;
        self.runtime.block_on(store.delete(&mut self.client, path))
    }

    /// Removes what pushes have left that were interrupted an hour ago or earlier; returns of how many objects.
    ///
    /// # Errors
    /// If no server answers.
    pub fn remove_leftovers(&mut self) -> Result<usize, NatsError> {
        let store = self.store()?;
        self.runtime.block_on(store.remove_leftovers(&mut self.client, LEFTOVER_AFTER))
    }

    /// Waits until an operator changes something for this device or group, `news` comes, or it is late; returns whether it was an
    /// operator. A new connection counts as that.
    ///
    /// # Errors
    /// If the connection is lost, or the login may not subscribe.
    pub fn wait(&mut self, device: &str, group: &str, news: &Notify, until: Instant) -> Result<bool, NatsError> {
        let subjects = [format!("device.{device}"), format!("group.{group}")];
        let subjects = subjects.map(|owner| format!("$KV.{DESIRED_BUCKET}.{owner}.*"));
        let client = &mut self.client;
        self.runtime.block_on(async {
            tokio::select! {
                published = client.published(&subjects, until) => published,
                () = news.notified() => Ok(false),
            }
        })
    }

    fn delete(&mut self, bucket: &Bucket, key: &str) -> Result<bool, NatsError> {
        let client = &mut self.client;
        self.runtime.block_on(async {
            let was_there = bucket.get(client, key).await?.is_some();
            if was_there {
                bucket.delete(client, key).await?;
            }
            Ok(was_there)
        })
    }

    fn desired_bucket(&mut self) -> Result<Bucket, NatsError> {
        let Self { runtime, client, desired, warns, .. } = self;
        open_bucket(runtime, client, desired, DESIRED_BUCKET, *warns)
    }

    fn reported_bucket(&mut self) -> Result<Bucket, NatsError> {
        let Self { runtime, client, reported, warns, .. } = self;
        open_bucket(runtime, client, reported, REPORTED_BUCKET, *warns)
    }

    fn store(&mut self) -> Result<Store, NatsError> {
        let Self { runtime, client, bundles, .. } = self;
        Ok(match bundles {
            Some(open) => open.clone(),
            none => none.insert(runtime.block_on(Store::open(client, BUNDLES_STORE))?).clone(),
        })
    }
}

/// Opens a bucket once.
fn open_bucket(
    runtime: &Runtime,
    client: &mut Client,
    open: &mut Option<Bucket>,
    name: &str,
    warns: bool,
) -> Result<Bucket, NatsError> {
    if let Some(open) = open {
        return Ok(open.clone());
    }
    let bucket = runtime.block_on(Bucket::open(client, name))?;
    warn_of_rollup(&bucket, warns);
    Ok(open.insert(bucket).clone())
}

/// Warns if a device that may write its own key could remove all others.
fn warn_of_rollup(bucket: &Bucket, warns: bool) {
    if warns && bucket.allows_rollup() {
        let (name, stream) = (bucket.name(), bucket.stream());
        complain(&format!(
            "{name} allows roll-ups, by which a login for one key can remove all others: `nats stream edit {stream} --no-allow-rollup` forbids them"
        ));
    }
}

impl BundleSource for Buckets {
    fn read_small(&mut self, path: &str, most: u64) -> Result<Vec<u8>, SourceError> {
        let mut contents = Vec::new();
        let read = self.object(path).and_then(|info| {
            self.read_object(&info, 0..info.size.min(most + 1), &mut |bytes| {
                contents.extend_from_slice(bytes);
                ControlFlow::Continue(())
            })
        });
        read.map_err(|error| unreadable(path, &error))?;
        if contents.len() as u64 > most {
            let reason = format!("it has more than {most} bytes, so it is no index: push the bundle again");
            return Err(SourceError::Unreadable { path: path.to_owned(), reason });
        }
        Ok(contents)
    }

    fn read_range(&mut self, path: &str, range: Range<u64>, take: &mut Take<'_>) -> Result<(), SourceError> {
        let read =
            self.object(path).and_then(|info| self.read_object(&info, range, &mut |bytes| take(Piece::Bytes(bytes))));
        read.map_err(|error| unreadable(path, &error))
    }
}

/// Returns a random text, by which a rollout orders devices.
///
/// # Errors
/// If the system has no random numbers.
pub fn random_id() -> Result<String, ExitError> {
    random_digits().map_err(|reason| ExitError::new(Exit::Failure, reason))
}

/// Says what is wrong with a fleet's servers, and what to do.
pub fn describe(error: &NatsError) -> String {
    match error {
        NatsError::MissingBucket { servers, .. } | NatsError::MissingStore { servers, .. } => {
            format!("{servers}: this is no fleet yet: make its buckets with `visiond fleet init`")
        }
        // Devices with an account of their own find JetStream's API elsewhere.
        NatsError::Forbidden { subject, .. } if subject.starts_with("$JS.API.") => format!("{error}, {OWN_ACCOUNT}"),
        NatsError::NoJetStream { .. } => format!("{error}, {OWN_ACCOUNT}"),
        error => error.to_string(),
    }
}

/// What to do in an account that has no JetStream of its own.
const OWN_ACCOUNT: &str = "or set NATS_JS_API_PREFIX if this is an account of devices";

/// Returns the error of a source.
pub fn unreadable(path: &str, error: &NatsError) -> SourceError {
    let (path, reason) = (path.to_owned(), describe(error));
    match error {
        NatsError::MissingObject { .. } => SourceError::Missing { path, reason },
        _ => SourceError::Unreadable { path, reason },
    }
}

/// Checks the servers of a fleet: nats://HOST or tls://HOST, several with commas.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_servers(text: &str) -> Result<(), String> {
    for server in text.split(',').map(str::trim) {
        let host = ["nats://", "tls://"].iter().find_map(|scheme| server.strip_prefix(scheme)).unwrap_or_default();
        if host.is_empty() || host.contains(['/', ' ']) {
            return Err(format!(
                "write nats://HOST or tls://HOST for each server, with commas between them, not {server:?}"
            ));
        }
        if host.contains('@') {
            return Err("set NATS_CREDS, or NATS_USER and NATS_PASSWORD, in place of a login in the URL, which every user can read".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_a_scheme_and_no_login() {
        for good in ["nats://a", "tls://a:4222,tls://b", "nats://[::1]:4222, nats://10.0.0.1"] {
            assert_eq!(check_servers(good), Ok(()), "{good}");
        }
        for (bad, words) in [
            ("nats://", "write nats://HOST"),
            ("nats://a,b", "not \"b\""),
            ("nats://a/x", "write nats://HOST"),
            ("tls://a,http://b", "not \"http://b\""),
            ("nats://joe:secret@a", "NATS_CREDS"),
        ] {
            let said = check_servers(bad).unwrap_err();
            assert!(said.contains(words) && !said.contains("secret"), "{bad}: {said}");
        }
    }
}
