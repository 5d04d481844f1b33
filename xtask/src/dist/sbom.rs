//! The software bill of materials: a CycloneDX document (<https://cyclonedx.org/docs/1.6/json/>).
//!
//! Written here and not by cargo-cyclonedx, because that lists the packages of a workspace with all its tests, and
//! knows no npm packages. The suite `packages` checks the document with the library of the CycloneDX project.

use super::archive::hex;
use super::components::{Components, Crate, NpmPackage, PackageId};
use super::source::Source;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The reference of the program in the document.
const PROGRAM: &str = "starling";

/// Returns the document as text.
pub(super) fn write(components: &Components, target: &str, source: &Source) -> String {
    let crates = components.crates.iter().map(crate_component);
    let npm = components.npm.iter().map(npm_component);
    let listed: Vec<Value> = crates.chain(npm).collect();

    let page = components.npm.iter().map(npm_url);
    let direct = components.direct.iter().map(crate_url);
    let mut dependencies =
        vec![json!({"ref": PROGRAM, "dependsOn": direct.chain(page).collect::<Vec<_>>()})];
    dependencies.extend(components.crates.iter().map(|it| {
        let used: Vec<String> = it.dependencies.iter().map(crate_url).collect();
        json!({"ref": crate_url(&it.id), "dependsOn": used})
    }));

    let version = env!("CARGO_PKG_VERSION");
    let mut properties = vec![json!({"name": "starling:target", "value": target})];
    if let Some(commit) = &source.commit {
        properties.push(json!({"name": "starling:commit", "value": commit}));
    }
    let mut document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": PROGRAM,
                "name": "starling",
                "version": version,
                "description": "The federated GraphQL router for live data.",
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
                "properties": properties,
            },
        },
        "components": listed,
        "dependencies": dependencies,
    });
    if let Some(time) = time_of(source.seconds) {
        document["metadata"]["timestamp"] = time.into();
    }
    // A number that is the same for the same content: a random one would make each archive another.
    let number = uuid(&Sha256::digest(document.to_string()));
    document["serialNumber"] = format!("urn:uuid:{number}").into();
    format!("{document:#}\n")
}

fn crate_component(it: &Crate) -> Value {
    let (name, version) = &it.id;
    let mut component = json!({
        "type": "library",
        "bom-ref": crate_url(&it.id),
        "name": name,
        "version": version,
        "purl": crate_url(&it.id),
    });
    if let Some(description) = &it.description {
        component["description"] = description.trim().into();
    }
    if let Some(licence) = &it.licence {
        component["licenses"] = licence_choice(licence);
    }
    if let Some(checksum) = &it.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &it.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

fn npm_component(it: &NpmPackage) -> Value {
    let url = npm_url(it);
    let mut component = json!({
        "type": "library",
        "bom-ref": url,
        "name": it.name,
        "version": it.version,
        "purl": url,
    });
    if let Some(licence) = &it.licence {
        component["licenses"] = licence_choice(licence);
    }
    let hash = it.integrity.as_deref().and_then(|it| it.strip_prefix("sha512-"));
    if let Some(bytes) = hash.and_then(|hash| STANDARD.decode(hash).ok()) {
        component["hashes"] = json!([{"alg": "SHA-512", "content": hex(&bytes)}]);
    }
    component
}

/// The old form of an SPDX expression has `/` for `OR`.
fn licence_choice(expression: &str) -> Value {
    json!([{"expression": expression.replace('/', " OR ")}])
}

/// Returns the package URL of a crate; `+` has a meaning in URLs.
fn crate_url((name, version): &PackageId) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

/// Returns the package URL of an npm package, in which the `@` of a scope is encoded.
fn npm_url(it: &NpmPackage) -> String {
    format!("pkg:npm/{}@{}", it.name.replace('@', "%40"), it.version.replace('+', "%2B"))
}

fn time_of(seconds: u64) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()?;
    time.format(&Rfc3339).ok()
}

/// Returns a UUID of version 8 (RFC 9562, section 5.8) with bits of a hash.
fn uuid(hash: &[u8]) -> String {
    let mut bytes: Vec<u8> = hash.iter().copied().take(16).collect();
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex(&bytes);
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_urls_encode_what_has_a_meaning_in_them() {
        let id = ("zstd-sys".to_owned(), "2.0.1+zstd.1.5".to_owned());
        assert_eq!(crate_url(&id), "pkg:cargo/zstd-sys@2.0.1%2Bzstd.1.5");
        let package = NpmPackage {
            name: "@a/b".into(),
            version: "1.0.0".into(),
            licence: None,
            integrity: None,
        };
        assert_eq!(npm_url(&package), "pkg:npm/%40a/b@1.0.0");
    }

    #[test]
    fn a_number_has_version_and_variant() {
        assert_eq!(uuid(&[0xff; 32]), "ffffffff-ffff-8fff-bfff-ffffffffffff");
    }
}
