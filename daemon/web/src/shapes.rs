//! The masks, lines and zones of a camera in the configuration file: what the editor of the live page reads, and writes back.
//!
//! A change is all or nothing: the new text is checked before it is written, and if the reload refuses it all the same, the old text
//! is written back. It names the version of the file that it is based on, so that no edit in between is lost.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, Path, State};
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rustix::fs::{Access, access};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use visiond_config::diagnostics::{Severity, count};
use visiond_config::settings::TakenSettings;
use visiond_config::shapes::{
    ShapeError, ShapeKind, Shapes, WantedShape, changed_shapes, shape_at, shapes_of, uncovered, with_shapes,
};
use visiond_config::types::{CameraConfig, Config};
use visiond_config::{ConfigErrors, read};
use visiond_ground::atomic_write::replace_atomically;
use visiond_service::Service;

use crate::errors::Problem;
use crate::listen::connection::{Client, Peer};
use crate::state::AppState;

/// Held from reading the file until the reload has ended, so that there is one change at a time.
static CHANGING: Mutex<()> = Mutex::const_new(());

/// The shapes of a camera in the file.
#[derive(Serialize)]
struct FileShapes {
    /// The tables, with the keys that the file sets.
    #[serde(flatten)]
    shapes: Shapes<toml::Table>,
    /// Whether the camera has a table `track`, which lines and zones need.
    track: bool,
    /// Whether clients may change them.
    allowed: bool,
    /// Why visiond cannot write the file although clients may change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The shapes that a camera shall have: all of its tables of these kinds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewShapes {
    privacy: Vec<WantedShape>,
    ignore: Vec<WantedShape>,
    line: Vec<WantedShape>,
    zone: Vec<WantedShape>,
    /// Whether privacy masks may go or change.
    #[serde(default)]
    uncover: bool,
}

/// `GET /api/v1/cameras/{name}/shapes`
pub async fn shapes(State(state): State<AppState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let path = state.reloads.path().to_owned();
    let allowed = state.service.commands().config().http.allow_changes;
    let (shapes, version) = in_background(move || {
        let text = read_file(&path)?;
        let (shapes, track) = shapes_of(&text, &name).map_err(refused)?;
        let reason = if allowed { not_writable(&path) } else { None };
        Ok((FileShapes { shapes, track, allowed, reason }, version(&text)))
    })
    .await?;
    Ok(([(ETAG, version)], Json(shapes)).into_response())
}

/// `PUT /api/v1/cameras/{name}/shapes`: writes the shapes into the file, reloads it, and answers with the outcome of the reload.
pub async fn change(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    new: Result<Json<NewShapes>, JsonRejection>,
) -> Result<Response, Problem> {
    if !state.service.commands().config().http.allow_changes {
        let why = "clients may not change the configuration: set `allow_changes = true` under [http] to allow it";
        return Err(Problem::new(StatusCode::FORBIDDEN, why));
    }
    let Json(new) = new.map_err(|error| Problem::new(error.status(), error.body_text()))?;
    let based_on = headers.get(IF_MATCH).and_then(|version| version.to_str().ok()).map(str::to_owned);
    let missing =
        "send the header If-Match with the ETag that GET of this address gave, so that no edit in between is lost";
    let based_on = based_on.ok_or_else(|| Problem::new(StatusCode::PRECONDITION_REQUIRED, missing))?;
    // A task of its own goes on when the client leaves: the file and what runs must not differ.
    let change = tokio::spawn(apply(state, Change { camera: name, peer: client.peer, based_on, new }));
    change.await.map_err(|_| panicked())?
}

/// A change that a client asks for.
struct Change {
    camera: String,
    peer: Peer,
    /// The version of the file that the client has seen.
    based_on: String,
    new: NewShapes,
}

async fn apply(state: AppState, change: Change) -> Result<Response, Problem> {
    let _one_at_a_time = CHANGING.lock().await;
    let path = state.reloads.path().to_owned();
    let service = Arc::clone(&state.service);
    let (camera, peer) = (change.camera.clone(), change.peer);
    let (old, new) = in_background(move || write(&service, &path, change)).await?;
    let outcome = state.reloads.request().await;
    let applied = outcome.as_ref().is_ok_and(|outcome| outcome.applied);
    let path = state.reloads.path().to_owned();
    if applied {
        log::info!("http: {peer} changed masks, lines or zones of camera {camera} in {}", path.display());
    } else {
        let new = new.clone();
        if in_background(move || restore(&path, &old, &new)).await? {
            // Another reload may have taken the new text meanwhile.
            let _ = state.reloads.request().await;
        }
    }
    let outcome = outcome.map_err(|_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is ending"))?;
    if outcome.applied {
        return Ok(([(ETAG, version(&new))], Json(outcome)).into_response());
    }
    let why = outcome.error.clone().unwrap_or_else(|| "refused".to_owned());
    Err(Problem::new(StatusCode::CONFLICT, why).with(serde_json::to_value(outcome).unwrap_or_default()))
}

/// Checks a change, and writes it into the file; returns the text before and after it.
fn write(service: &Service, path: &FilePath, change: Change) -> Result<(String, String), Problem> {
    let Change { camera, based_on, new, .. } = change;
    let old = read_file(path)?;
    let is_same = |text: &str| {
        // A proxy that compresses makes the version a weak one.
        if based_on.strip_prefix("W/").unwrap_or(&based_on) == version(text) {
            return Ok(());
        }
        let why =
            "the configuration file has changed since the editor loaded it: load it again, so that no edit is lost";
        Err(Problem::new(StatusCode::PRECONDITION_FAILED, why))
    };
    is_same(&old)?;
    let NewShapes { privacy, ignore, line, zone, uncover } = new;
    let kinds = [ShapeKind::Privacy, ShapeKind::Ignore, ShapeKind::Line, ShapeKind::Zone];
    let wanted: Shapes<_> = kinds.into_iter().zip([privacy, ignore, line, zone]).collect();
    let in_file = uncovered(&old, &camera, &wanted).map_err(refused)?.len();
    let new = with_shapes(&old, &camera, &wanted).map_err(refused)?;
    let old_config = Config::complete(&old, path).ok();
    if let Some(settings) = old_config.as_ref().and_then(|config| config.bundles.taken.as_ref()) {
        not_overridden(settings, &old, &camera, &wanted)?;
    }
    let config = Config::complete(&new, path).map_err(|errors| invalid(&errors, path, &new, &camera, &wanted))?;
    let ask = || {
        let mut masks = running_uncovered(&service.commands().config(), old_config.as_ref(), &config);
        *masks.entry(camera.clone()).or_default() += in_file;
        masks.retain(|_, masks| *masks > 0);
        if masks.is_empty() || uncover {
            return Ok(());
        }
        let of_each =
            masks.iter().map(|(camera, masks)| format!("{} of camera {camera}", count(*masks, "privacy mask")));
        let why = format!(
            "{} would go or change, and images, messages and clips could show what is below: send `uncover` if that is allowed",
            of_each.collect::<Vec<_>>().join(" and "),
        );
        let (cameras, masks): (Vec<_>, Vec<_>) = masks.into_iter().unzip();
        let number: usize = masks.iter().sum();
        Err(Problem::new(StatusCode::CONFLICT, why).with(json!({ "uncovers": number, "cameras": cameras })))
    };
    ask()?;
    service.preview(&config).map_err(|error| Problem::new(StatusCode::CONFLICT, error.to_string()))?;
    // The checks may have waited for a reload.
    ask()?;
    if new != old {
        if let Some(reason) = not_writable(path) {
            return Err(Problem::new(StatusCode::CONFLICT, reason));
        }
        is_same(&read_file(path)?)?;
        replace_atomically(path, new.as_bytes()).map_err(|error| Problem::internal(cannot_replace(path, &error)))?;
    }
    Ok((old, new))
}

/// Refuses changes that would have no effect, because the settings of a bundle lie over them.
fn not_overridden(
    settings: &TakenSettings,
    old: &str,
    camera: &str,
    wanted: &Shapes<WantedShape>,
) -> Result<(), Problem> {
    let Some(what) = changed_shapes(old, camera, wanted).map_err(refused)?.into_iter().find(|changed| {
        // Masks are only added to those of the file.
        changed.kind != ShapeKind::Privacy && settings.sets(camera, changed.kind.table(), changed.name.as_deref())
    }) else {
        return Ok(());
    };
    let TakenSettings { bundle, version, .. } = settings;
    let table = what.kind.table();
    let name = what.name.map_or(String::new(), |name| format!(" {name:?}"));
    let why = format!(
        "the bundle {bundle} (version {version}) sets the {table}{name} of camera {camera}, so a change of the file would have no \
         effect: make a new version of {bundle}"
    );
    Err(Problem::new(StatusCode::CONFLICT, why))
}

/// Returns for each camera the number of masks that are in force, and that neither the file nor its new text has: an edit of the file
/// that has not been reloaded removed or changed them, and the reload would take that over.
fn running_uncovered(running: &Config, file: Option<&Config>, new: &Config) -> BTreeMap<String, usize> {
    let masks_of = |config: &Config, name: &str| {
        let camera = config.cameras.iter().find(|camera| camera.name == name);
        camera.map(|camera| camera.privacy.clone())
    };
    let gone = |camera: &CameraConfig| {
        // A camera that the file no longer has may have another name there.
        let mut stay = masks_of(new, &camera.name).unwrap_or_default();
        // Those of the file are counted by their place in it.
        stay.extend(file.and_then(|file| masks_of(file, &camera.name)).unwrap_or_default());
        (camera.name.clone(), camera.privacy.iter().filter(|mask| !stay.contains(mask)).count())
    };
    running.cameras.iter().map(gone).collect()
}

/// Puts the old text back, unless somebody has changed the file meanwhile; returns whether it did.
fn restore(path: &FilePath, old: &str, new: &str) -> Result<bool, Problem> {
    if old == new || read_file(path)? != new {
        return Ok(false);
    }
    replace_atomically(path, old.as_bytes()).map_err(|error| Problem::internal(cannot_replace(path, &error)))?;
    Ok(true)
}

/// Returns the problem of a configuration with errors: `errors` has each with the shape that it is about.
fn invalid(errors: &ConfigErrors, path: &FilePath, text: &str, camera: &str, wanted: &Shapes<WantedShape>) -> Problem {
    let findings = errors.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let places: Vec<Value> = findings
        .map(|finding| {
            // Settings of a bundle have lines of their own.
            let line = finding.line.filter(|_| finding.file == path);
            let shape = line.and_then(|line| shape_at(text, camera, wanted, line));
            let (kind, place) = shape.unzip();
            json!({ "message": finding.message, "kind": kind, "place": place })
        })
        .collect();
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, errors.to_string()).with(json!({ "errors": places }))
}

fn refused(error: ShapeError) -> Problem {
    let status = match error {
        ShapeError::NoCamera(_) => StatusCode::NOT_FOUND,
        ShapeError::Was { .. } | ShapeError::Key(_) => StatusCode::BAD_REQUEST,
        ShapeError::Syntax { .. } | ShapeError::Inline { .. } | ShapeError::Entangled(_) => StatusCode::CONFLICT,
    };
    Problem::new(status, error.to_string())
}

fn read_file(path: &FilePath) -> Result<String, Problem> {
    read(path).map_err(|finding| Problem::new(StatusCode::CONFLICT, finding.to_string()))
}

/// Returns the version of a text, as the header ETag has it.
fn version(text: &str) -> String {
    format!("\"{:x}\"", Sha256::digest(text))
}

/// Returns why visiond cannot replace the file, with the remedy.
fn not_writable(path: &FilePath) -> Option<String> {
    let check = || {
        let path = path.canonicalize()?;
        let user = geteuid();
        // The new file belongs to visiond's user, who cannot give it to another one.
        if !user.is_root() && path.metadata()?.uid() != user.as_raw() {
            return Err(io::Error::other("it belongs to another user"));
        }
        Ok(access(path.parent().unwrap_or(FilePath::new("/")), Access::WRITE_OK | Access::EXEC_OK)?)
    };
    check().err().map(|error| cannot_replace(path, &error))
}

fn cannot_replace(path: &FilePath, error: &io::Error) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(FilePath::new("/")).display();
    format!(
        "cannot replace {}: {error}: it must belong to visiond's user, who needs write access to {folder}, in a service also by \
         ReadWritePaths={folder}",
        path.display(),
    )
}

/// Runs work that waits for the disk on another thread, because one thread serves all clients.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    spawn_blocking(work).await.map_err(|_| panicked())?
}

/// The panic hook has logged the panic.
fn panicked() -> Problem {
    Problem::internal("internal error, see the log of visiond: please report it")
}
