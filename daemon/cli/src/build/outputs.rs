//! Writes the engine, its sidecar and a copy of the model card, so that the engine can replace the model in any configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use visiond_engine::engine::Dim;
use visiond_engine::tensorrt::sidecar::{EngineFile, OnnxSource, Sidecar};
use visiond_engine_builder::{BuildError, Built, ShapeProfile, ShapeRange};
use visiond_ground::atomic_write::write_atomically;
use visiond_system::exit::{Exit, ExitError};

use super::arguments::Args;

/// The output files, checked before the long build.
pub struct BuildFiles {
    engine: PathBuf,
    /// The card to copy, and its destination.
    card: Option<(PathBuf, PathBuf)>,
}

impl BuildFiles {
    /// Checks that the engine can be written.
    ///
    /// # Errors
    /// With [`Exit::Output`] or [`Exit::Usage`]; the message says which file to name.
    pub fn new(args: &Args, engine: &Path) -> Result<Self, ExitError> {
        let folder = engine.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let shown = engine.display();
        let (exit, message) = if !folder.is_dir() {
            (Exit::Output, format!("{} is not a folder: create it first", folder.display()))
        } else if engine.is_dir() {
            (Exit::Output, format!("{shown} is a folder: name a file"))
        } else if same(engine, &args.model) {
            (Exit::Usage, format!("{shown} is the model itself: name another file with -o"))
        } else if engine.exists() && !args.force {
            (Exit::Output, format!("{shown} already exists: name another file with -o, or add --force"))
        } else {
            let source = args.card.clone().unwrap_or_else(|| args.model.with_extension("toml"));
            let target = engine.with_extension("toml");
            let card = (source.is_file() && !same(&source, &target)).then_some((source, target));
            return Ok(Self { engine: engine.to_owned(), card });
        };
        Err(ExitError::new(exit, message))
    }

    /// Writes all files, the engine last.
    pub fn write(&self, built: &Built, args: &Args, took: Duration) -> Result<Sidecar, ExitError> {
        let sidecar = sidecar(built, args, took);
        let path = Sidecar::path_of(&self.engine);
        let before = fs::read(&path).ok();
        let mut made = Vec::new();
        if let Err(error) = self.write_all(&sidecar, &built.plan, &mut made) {
            // Restore the sidecar of an engine that --force would have replaced, and remove files without an engine. An
            // error here is ignored, because the error above already reports the disk.
            let _ = match before {
                Some(before) => write_atomically(&path, &before),
                None => fs::remove_file(&path),
            };
            made.iter().for_each(|file| drop(fs::remove_file(file)));
            return Err(error);
        }
        if let Some(rewritten) = &built.rewritten
            && rewritten.clamped > 0
        {
            let example = rewritten.clamped_in.as_deref().unwrap_or_default();
            log::warn!(
                "{} weights exceed the range of FP16 and were clamped to its maximum, among them some of `{example}`: \
                 compare the engine with its model (`visiond verify`), or use --bf16",
                rewritten.clamped
            );
        }
        Ok(sidecar)
    }

    /// Writes the files, and adds to `made` those of the card that did not exist before.
    fn write_all(&self, sidecar: &Sidecar, plan: &[u8], made: &mut Vec<PathBuf>) -> Result<(), ExitError> {
        sidecar.write(&self.engine).map_err(|error| failed(&Sidecar::path_of(&self.engine), error))?;
        if let Some((source, target)) = &self.card {
            copy_card(source, target, made)?;
        }
        write_atomically(&self.engine, plan).map_err(|error| failed(&self.engine, error))
    }
}

fn failed(path: &Path, error: io::Error) -> ExitError {
    ExitError::new(Exit::Output, BuildError::Write { path: path.to_owned(), error })
}

fn same(a: &Path, b: &Path) -> bool {
    a == b || a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

/// Copies the card and the files of class names and inputs that it refers to, and adds them to `made`. Never replaces an existing
/// file, because it is the user's.
fn copy_card(source: &Path, target: &Path, made: &mut Vec<PathBuf>) -> Result<(), ExitError> {
    let text = fs::read_to_string(source)
        .map_err(|error| ExitError::new(Exit::Config, format!("cannot read {}: {error}", source.display())))?;
    if target.exists() {
        if fs::read_to_string(target).is_ok_and(|there| there != text) {
            log::warn!(
                "kept the existing card {}, which differs from {}: compare them, and delete the wrong one",
                target.display(),
                source.display()
            );
        }
        return Ok(());
    }
    let card = toml::from_str::<toml::Table>(&text).unwrap_or_default();
    let names = card.get("classes").and_then(|classes| classes.get("file")?.as_str());
    let inputs = card.get("extra_inputs").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::values);
    // Reading the card rejects a file outside its folder.
    let is_beside = |file: &&str| file.ends_with(".npy") && !file.contains("..");
    let inputs = inputs.filter_map(toml::Value::as_str).filter(is_beside);
    let parent = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
    let (folder, new_folder) = (parent(source), parent(target));
    for file in names.into_iter().chain(inputs).filter(|file| Path::new(file).is_relative()) {
        let (from, to) = (folder.join(file), new_folder.join(file));
        if !to.exists() {
            let folder = to.parent().map_or(Ok(()), fs::create_dir_all);
            made.push(to.clone());
            folder.and_then(|()| fs::copy(&from, &to)).map_err(|error| failed(&to, error))?;
        }
    }
    made.push(target.to_owned());
    write_atomically(target, text.as_bytes()).map_err(|error| failed(target, error))?;
    log::info!("copied the card {} to {}", source.display(), target.display());
    Ok(())
}

fn sidecar(built: &Built, args: &Args, took: Duration) -> Sidecar {
    let facts = built.device.as_ref();
    let capability = |number: &u32| format!("{}.{}", number / 10, number % 10);
    let fixed = built.onnx.inputs.iter().filter_map(|input| {
        let shape: Option<Vec<usize>> = input.shape.as_ref()?.iter().map(Dim::fixed).collect();
        Some((input.name.clone(), ShapeRange::fixed(shape?).to_string()))
    });
    let text = |profile: &ShapeProfile| profile.iter().map(|(name, range)| (name.clone(), range.to_string())).collect();
    let ranged = built.profiles.iter().map(text);
    let profiles = if built.profiles.is_empty() { vec![fixed.collect()] } else { ranged.collect() };
    let onnx = args.model.canonicalize().unwrap_or_else(|_| args.model.clone());
    Sidecar {
        visiond: env!("CARGO_PKG_VERSION").to_owned(),
        built_at: format!("{:.0}", jiff::Timestamp::now()),
        build_seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
        engine: EngineFile { sha256: built.sha256.clone() },
        tensorrt: built.version.to_string(),
        cuda: facts.map(|facts| facts.cuda_version()),
        gpu: facts.map(|facts| facts.name.clone()),
        sm: facts.map(|facts| format!("{}.{}", facts.sm.0, facts.sm.1)),
        compute_capabilities: built.compute_capabilities.iter().map(capability).collect(),
        options: args.engine_flags(),
        onnx: OnnxSource { path: onnx, sha256: built.onnx.file.sha256.clone() },
        profiles,
        precision: precision_text(built, args),
        metadata: built.onnx.metadata.clone(),
        rebuild: None,
    }
}

/// Describes the precision of the engine.
fn precision_text(built: &Built, args: &Args) -> String {
    let name = if args.fp16 { "fp16" } else { "bf16" };
    let layers = match &built.rewritten {
        Some(rewritten) => format!("{} layers in {name}, {} in fp32", rewritten.half_layers, rewritten.full_layers),
        None if args.fp16 || args.bf16 => format!("{name} where TensorRT finds it faster"),
        None if args.int8 => return "int8".to_owned(),
        None => return "as in the model file".to_owned(),
    };
    if args.int8 { format!("int8, {layers}") } else { layers }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_card_is_copied_with_the_files_that_it_names_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let card = "[extra_inputs]\na = \"in/a.npy\"\nb = \"input-size\"\nc = 1\nd = \"../d.npy\"\n[classes]\nfile = \"n.txt\"\n";
        for name in ["from/in", "to"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for (name, text) in [("from/net.toml", card), ("from/in/a.npy", "a"), ("from/n.txt", "n"), ("d.npy", "d")] {
            fs::write(at(name), text).unwrap();
        }
        let mut made = Vec::new();
        copy_card(&at("from/net.toml"), &at("to/net.toml"), &mut made).unwrap();
        for (name, text) in [("to/net.toml", card), ("to/in/a.npy", "a"), ("to/n.txt", "n")] {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), text, "{name}");
        }
        made.sort();
        assert_eq!(made, [at("to/in/a.npy"), at("to/n.txt"), at("to/net.toml")]);
    }

    fn args(line: &str) -> Args {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        <Line as clap::Parser>::try_parse_from(["build"].into_iter().chain(line.split(' '))).unwrap().args
    }

    #[test]
    fn an_engine_is_not_written_over_a_folder_the_model_or_an_engine_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["net.onnx", "old.engine"] {
            fs::write(at(name), "").unwrap();
        }
        std::os::unix::fs::symlink("net.onnx", at("link.onnx")).unwrap();
        let model = at("net.onnx").display().to_string();
        let of = |engine: &str, flags: &str| {
            let line = format!("{model}{flags}");
            BuildFiles::new(&args(&line), &at(engine)).map(drop).map_err(|error| (error.exit, error.message))
        };
        for (engine, flags, exit, words) in [
            ("no/new.engine", "", Exit::Output, "is not a folder: create it first"),
            ("", "", Exit::Output, "is a folder: name a file"),
            ("net.onnx", " --force", Exit::Usage, "is the model itself"),
            ("link.onnx", " --force", Exit::Usage, "is the model itself"),
            ("old.engine", "", Exit::Output, "already exists"),
        ] {
            let (found, message) = of(engine, flags).unwrap_err();
            assert!(found == exit && message.contains(words), "{engine}: {message}");
        }
        assert_eq!([of("new.engine", ""), of("old.engine", " --force")], [Ok(()), Ok(())]);
    }

    #[test]
    fn files_are_written_together_or_not_at_all_and_a_card_that_is_there_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, text) in [("net.onnx", ""), ("net.toml", "new"), ("a.toml", "own")] {
            fs::write(at(name), text).unwrap();
        }
        let args = args(&at("net.onnx").display().to_string());
        let write = |engine: &str, made: &mut Vec<PathBuf>| {
            let files = BuildFiles::new(&args, &at(engine)).unwrap();
            files.write_all(&Sidecar::default(), b"plan", made).unwrap();
        };
        let (mut with_card, mut without) = (Vec::new(), Vec::new());
        write("b.engine", &mut with_card);
        assert_eq!((fs::read(at("b.engine")).unwrap(), with_card), (b"plan".to_vec(), vec![at("b.toml")]));
        assert!(at("b.engine.json").is_file());
        write("a.engine", &mut without);
        assert_eq!((fs::read_to_string(at("a.toml")).unwrap(), without), ("own".to_owned(), Vec::new()));
    }
}
