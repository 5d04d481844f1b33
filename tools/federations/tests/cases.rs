//! Cases in `fixtures`: a supergraph, an operation, the data, and the expected response. Failures of random trials are
//! written there, too. `UPDATE_EXPECT=1` rewrites `response.json` with the response of the reference server; review the
//! difference.

use std::path::{Path, PathBuf};

use federations::{Case, Outcome};
use serde_json::Value;

fn check(folder: &Path) -> Result<(), String> {
    let case = Case::read(folder)?;
    let expected_response = case.expected()?;
    let path = folder.join("response.json");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, format!("{expected_response:#}\n"))
            .map_err(|error| error.to_string())?;
    }
    let written = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let written: Value = serde_json::from_str(&written).map_err(|error| error.to_string())?;
    // The comparison is by text, because the order of members counts.
    if format!("{written}") != format!("{expected_response}") {
        return Err(format!("the reference server responds {expected_response}, not {written}"));
    }
    match case.compare()? {
        Ok(Outcome::Correct { .. }) => Ok(()),
        Ok(other) => Err(format!("{other:?}")),
        Err(failure) => Err(format!("{:?}: {}", failure.kind, failure.message)),
    }
}

#[test]
fn every_case_has_the_response_of_one_server() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(fixtures)
        .expect("fixtures are valid")
        .map(|entry| entry.expect("fixtures are valid").path())
        .collect();
    folders.sort();
    let wrong: Vec<String> = folders
        .iter()
        .filter_map(|folder| Some(format!("{}: {}", folder.display(), check(folder).err()?)))
        .collect();
    assert!(folders.len() > 2, "{} cases", folders.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
