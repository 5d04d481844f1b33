//! Cases in `fixtures`: a supergraph, an operation, the data, and the expected response, in some also the expected
//! requests. Failures of random trials are written there, too. `UPDATE_EXPECT=1` rewrites `response.json` with the
//! response of the reference server, and `requests.txt`; review the difference.

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
        Ok(Outcome::Correct { requests, .. }) => check_requests(folder, &requests),
        Ok(other) => Err(format!("{other:?}")),
        Err(failure) => Err(format!("{:?}: {}", failure.kind, failure.message)),
    }
}

/// Compares the requests to subgraphs with `requests.txt`, in a folder that has this file.
fn check_requests(folder: &Path, requests: &[(String, String)]) -> Result<(), String> {
    let path = folder.join("requests.txt");
    if !path.exists() {
        return Ok(());
    }
    let lines = requests.iter().map(|(subgraph, request)| format!("{subgraph}: {request}\n"));
    let sent: String = lines.collect();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &sent).map_err(|error| error.to_string())?;
    }
    let expected = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    if sent == expected {
        Ok(())
    } else {
        Err(format!("the requests are\n{sent}, not\n{expected}"))
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
