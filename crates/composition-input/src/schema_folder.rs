//! A folder with one schema file for each subgraph, in place of the file that names the subgraphs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use config::diagnostic::Diagnostic;

use crate::composition_config::{CompositionConfig, SchemaSource, SubgraphConfig};

/// The endings of schema files.
const SCHEMA_ENDINGS: [&str; 3] = ["graphql", "graphqls", "gql"];

/// The maximum number of schema files. Composition accepts fewer subgraphs and reports that itself; this bound keeps a
/// wrong folder from being read.
const SCHEMA_FILES_MAX: usize = 1_000;

/// True if a file with this name is the schema of a subgraph: the name has the ending of a schema and is not hidden.
pub fn is_schema_file_name(name: &OsStr) -> bool {
    let ending = Path::new(name).extension().and_then(OsStr::to_str);
    let is_hidden = name.as_encoded_bytes().starts_with(b".");
    !is_hidden && ending.is_some_and(|it| SCHEMA_ENDINGS.contains(&it))
}

impl CompositionConfig {
    /// Reads the names of the subgraphs from a folder: `NAME.graphql` is the schema of the subgraph NAME, as are
    /// `NAME.graphqls` and `NAME.gql`. Hidden files, folders and files with other endings are ignored. `urls` has the
    /// URLs of the subgraphs by name. Blocks.
    ///
    /// # Errors
    /// The reason why the folder cannot be read, or all mistakes: no schema, more than 1,000 schemas, two files for one
    /// subgraph, and names that are not UTF-8.
    pub fn read_folder(
        folder: &Path,
        urls: &BTreeMap<String, String>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let files = schema_files(folder).map_err(|error| vec![unreadable(folder, &error)])?;
        if files.is_empty() {
            return Err(vec![no_schemas(folder)]);
        }
        if files.len() > SCHEMA_FILES_MAX {
            return Err(vec![too_many_schemas(folder)]);
        }
        let mut schemas: BTreeMap<String, PathBuf> = BTreeMap::new();
        let mut mistakes = Vec::new();
        for file in files {
            let Some(name) = file.file_stem().and_then(OsStr::to_str) else {
                mistakes.push(unreadable_name(&file));
                continue;
            };
            match schemas.entry(name.to_owned()) {
                Entry::Vacant(entry) => {
                    entry.insert(file);
                }
                Entry::Occupied(first) => {
                    mistakes.push(duplicate_name(first.key(), first.get(), &file));
                }
            }
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let subgraphs = schemas.into_iter().map(|(name, file)| SubgraphConfig {
            routing_url: urls.get(&name).cloned(),
            schema: SchemaSource::File(file),
            subscription: None,
            place: None,
            name,
        });
        Ok(Self {
            subgraphs: subgraphs.collect(),
            path: folder.to_owned(),
            warnings: Vec::new(),
            source: None,
        })
    }
}

/// Returns the schema files of a folder in the order of their names, at most one more than allowed: that is enough to
/// refuse the folder.
fn schema_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        // In a Kubernetes volume all files are links. A link that leads nowhere is reported when its schema is read: to
        // ignore it would remove a subgraph from the graph.
        if path.file_name().is_some_and(is_schema_file_name) && !path.is_dir() {
            files.push(path);
        }
        if files.len() > SCHEMA_FILES_MAX {
            break;
        }
    }
    files.sort();
    Ok(files)
}

fn unreadable(folder: &Path, error: &Error) -> Diagnostic {
    let folder = folder.display();
    let (reason, help) = match error.kind() {
        ErrorKind::NotFound => (
            "there is no such folder".to_owned(),
            "set its path by `supergraph.directory` in the configuration of the router",
        ),
        ErrorKind::NotADirectory => (
            "it is not a folder".to_owned(),
            "set a supergraph by `supergraph.file`, and a composition configuration by `supergraph.compose`",
        ),
        ErrorKind::PermissionDenied => {
            ("permission denied".to_owned(), "let the user that runs the router read it")
        }
        _ => (error.to_string(), "check the path in `supergraph.directory`"),
    };
    let message = format!("cannot read the folder of schemas {folder}: {reason}");
    Diagnostic::error("unreadable-folder", message).help(help)
}

fn no_schemas(folder: &Path) -> Diagnostic {
    let message = format!("the folder of schemas {} has no schema", folder.display());
    let help = "add one file for each subgraph: `products.graphql` is the schema of the subgraph `products`";
    Diagnostic::error("no-subgraphs", message).help(help)
}

fn too_many_schemas(folder: &Path) -> Diagnostic {
    let folder = folder.display();
    let message =
        format!("the folder of schemas {folder} has more than {SCHEMA_FILES_MAX} schemas");
    let help =
        "check the path in `supergraph.directory`: the folder has one schema for each subgraph";
    Diagnostic::error("too-many-files", message).help(help)
}

fn unreadable_name(file: &Path) -> Diagnostic {
    let message = format!("the name of the schema {} is not UTF-8", file.display());
    Diagnostic::error("invalid-name", message)
        .help("rename the file: its name is that of the subgraph")
}

fn duplicate_name(name: &str, first: &Path, second: &Path) -> Diagnostic {
    let (first, second) = (first.display(), second.display());
    let message = format!("{first} and {second} are both the schema of the subgraph `{name}`");
    Diagnostic::error("duplicate-name", message)
        .help("remove one of them, or rename it: the name of a file is that of its subgraph")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use config::diagnostic::{Style, render};

    use super::*;

    fn read(folder: &Path) -> Result<Vec<String>, String> {
        let read = CompositionConfig::read_folder(folder, &BTreeMap::new());
        let names = read.map(|config| config.subgraphs.into_iter().map(|it| it.name).collect());
        let place = folder.display().to_string();
        names.map_err(|mistakes| render(&mistakes, Style::Plain).replace(&place, "HERE"))
    }

    #[test]
    fn the_names_of_schemas_have_an_ending_and_are_not_hidden() {
        let names = [
            ("products.graphql", true),
            ("a.b.graphqls", true),
            ("products.gql", true),
            ("products.graphql~", false),
            ("products.GraphQL", false),
            ("graphql", false),
            (".graphql", false),
            (".products.graphql", false),
            ("..data", false),
            ("starling.yaml", false),
        ];
        for (name, expected) in names {
            assert_eq!(is_schema_file_name(OsStr::new(name)), expected, "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_to_files_count_as_in_a_volume_of_kubernetes() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir(place("..2025")).unwrap();
        fs::write(place("..2025/products.graphql"), "type Query { a: Int }").unwrap();
        symlink("..2025", place("..data")).unwrap();
        symlink("..data/products.graphql", place("products.graphql")).unwrap();
        symlink("..data", place("linked.graphql")).unwrap();
        assert_eq!(read(folder.path()), Ok(vec!["products".to_owned()]));
        // A link that leads nowhere is not taken for a subgraph that was removed.
        symlink("..data/stock.graphql", place("stock.graphql")).unwrap();
        assert_eq!(read(folder.path()), Ok(vec!["products".to_owned(), "stock".to_owned()]));
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_reported_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            read(&folder.path().join("none")).unwrap_err(),
            "error[unreadable-folder]: cannot read the folder of schemas HERE: there is no such folder\n \
             |\n = help: set its path by `supergraph.directory` in the configuration of the router\n"
        );
        let file = folder.path().join("supergraph.yaml");
        fs::write(&file, "").unwrap();
        let message = read(&file).unwrap_err();
        assert!(message.contains("it is not a folder"), "{message}");
        assert!(message.contains("configuration by `supergraph.compose`"), "{message}");
    }

    #[test]
    fn a_folder_with_too_many_schemas_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..=SCHEMA_FILES_MAX {
            fs::write(folder.path().join(format!("{number}.graphql")), "").unwrap();
        }
        let message = read(folder.path()).unwrap_err();
        assert!(message.contains("HERE has more than 1000 schemas"), "{message}");
        fs::remove_file(folder.path().join("0.graphql")).unwrap();
        assert_eq!(read(folder.path()).map(|names| names.len()), Ok(SCHEMA_FILES_MAX));
    }

    // Other systems do not have such names.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_name_that_is_not_text_is_reported() {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = tempfile::tempdir().unwrap();
        let name = OsStr::from_bytes(b"caf\xe9.graphql");
        fs::write(folder.path().join(name), "").unwrap();
        let message = read(folder.path()).unwrap_err();
        assert!(message.contains("the name of the schema HERE/caf"), "{message}");
    }
}
