//! The third-party programs that tests use, and the rule for missing ones.
//!
//! The rule, also for the suites in JavaScript (`tests/e2e/js/programs.mjs`): the path in the environment variable,
//! which `cargo xtask test` sets; then `PATH`; otherwise the test skips itself with [`skip`], or fails with `CI=true`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// The folders of servers on Debian, which a user's `PATH` often lacks.
const SERVER_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// A program that some tests need in addition to cargo and Node.js.
#[derive(Debug)]
pub struct Program {
    /// The name of its Debian package, also used in messages.
    pub package: &'static str,
    /// The environment variable with its path.
    pub variable: &'static str,
    /// The file names to search for on `PATH`.
    names: &'static [&'static str],
}

/// The broker of [`nats`](crate::nats).
pub static NATS_SERVER: Program = Program {
    package: "nats-server",
    variable: "STARLING_TEST_NATS_SERVER",
    names: &["nats-server"],
};

/// The broker of [`redis`](crate::redis).
pub static REDIS_SERVER: Program = Program {
    package: "redis-server",
    variable: "STARLING_TEST_REDIS_SERVER",
    names: &["redis-server"],
};

/// The browser for the page.
pub static CHROMIUM: Program = Program {
    package: "chromium",
    variable: "STARLING_TEST_CHROMIUM",
    names: &["chromium", "chromium-browser", "google-chrome"],
};

/// The caching proxy in front of the router.
pub static NGINX: Program =
    Program { package: "nginx", variable: "STARLING_TEST_NGINX", names: &["nginx"] };

/// The load balancer in front of several routers.
pub static HAPROXY: Program =
    Program { package: "haproxy", variable: "STARLING_TEST_HAPROXY", names: &["haproxy"] };

/// The tools of a small machine without Rust and Node.js.
pub static BUSYBOX: Program =
    Program { package: "busybox-static", variable: "STARLING_TEST_BUSYBOX", names: &["busybox"] };

/// Builds container images.
pub static BUILDAH: Program =
    Program { package: "buildah", variable: "STARLING_TEST_BUILDAH", names: &["buildah"] };

/// The checks of Prometheus for metrics and alert rules.
pub static PROMTOOL: Program =
    Program { package: "prometheus", variable: "STARLING_TEST_PROMTOOL", names: &["promtool"] };

/// The decision point of policies. No Debian package has it: it is built by Go.
pub static OPEN_POLICY_AGENT: Program =
    Program { package: "opa", variable: "STARLING_TEST_OPA", names: &["opa"] };

/// The package and version of [`OPEN_POLICY_AGENT`], as `go install` expects them.
pub const OPEN_POLICY_AGENT_PACKAGE: &str = "github.com/open-policy-agent/opa@v1.22.3";

/// The OpenTelemetry collector, with the parts of [`OPENTELEMETRY_COLLECTOR_FOLDER`]. No Debian package has it: it is
/// built by Go.
pub static OPENTELEMETRY_COLLECTOR: Program =
    Program { package: "otelcol", variable: "STARLING_TEST_OTELCOL", names: &["otelcol"] };

/// The folder of the Go module of [`OPENTELEMETRY_COLLECTOR`].
pub const OPENTELEMETRY_COLLECTOR_FOLDER: &str = "tests/e2e/collector";

/// Renders and checks the chart. Built by Go, as are the next ones.
pub static HELM: Program =
    Program { package: "helm", variable: "STARLING_TEST_HELM", names: &["helm"] };

/// The package and version of [`HELM`].
pub const HELM_PACKAGE: &str = "helm.sh/helm/v3/cmd/helm@v3.22.0";

/// The API server of Kubernetes with its store and its controllers.
pub static KUBERNETES: Program =
    Program { package: "kubernetes", variable: "STARLING_TEST_KUBERNETES", names: &["kubernetes"] };

/// The folder of the Go module of [`KUBERNETES`], and the setting of the linker that gives it the version which clients
/// ask for. It is the version of `k8s.io/kubernetes` in `go.mod`, as a test checks.
pub const KUBERNETES_MODULE: (&str, &str) =
    ("tests/e2e/kubernetes", "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3");

/// Validates manifests as the API server of Kubernetes does, with its code and its schemas.
pub static KUBECTL_VALIDATE: Program = Program {
    package: "kubectl-validate",
    variable: "STARLING_TEST_KUBECTL_VALIDATE",
    names: &["kubectl-validate"],
};

/// The package and version of [`KUBECTL_VALIDATE`].
pub const KUBECTL_VALIDATE_PACKAGE: &str = "sigs.k8s.io/kubectl-validate@v0.0.4";

/// The reader of Docker Compose for its files. Go calls the program by the folder of its package.
pub static COMPOSE_GO: Program =
    Program { package: "cmd", variable: "STARLING_TEST_COMPOSE_GO", names: &["compose-go"] };

/// The package and version of [`COMPOSE_GO`].
pub const COMPOSE_GO_PACKAGE: &str = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2";

/// Checks the workflows of hosted CI.
pub static ACTIONLINT: Program =
    Program { package: "actionlint", variable: "STARLING_TEST_ACTIONLINT", names: &["actionlint"] };

/// The package and version of [`ACTIONLINT`].
pub const ACTIONLINT_PACKAGE: &str = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12";

/// The environment variable with the folder of the definitions of `ServiceMonitor` and its relatives.
pub const MONITORING_DEFINITIONS_VARIABLE: &str = "STARLING_TEST_MONITORING_DEFINITIONS";

/// The Go module of these definitions, and their folder in it.
pub const MONITORING_DEFINITIONS: (&str, &str) = (
    "github.com/prometheus-operator/prometheus-operator@v0.83.0",
    "example/prometheus-operator-crd",
);

/// All Debian packages with programs, except those that Kafka needs ([`kafka_jars`]).
pub static PROGRAMS: [&Program; 8] =
    [&NATS_SERVER, &REDIS_SERVER, &CHROMIUM, &NGINX, &HAPROXY, &PROMTOOL, &BUSYBOX, &BUILDAH];

/// The environment variable with the folder of Kafka's jars.
pub const KAFKA_VARIABLE: &str = "STARLING_TEST_KAFKA";

/// The folder of the jars in the target folder. It contains the version, so that a new version is fetched.
pub const KAFKA_FOLDER: &str = "kafka-4.3.1";

impl Program {
    /// Returns the path that the environment variable contains, or the first file on `PATH` with one of the names.
    pub fn locate(&self) -> Option<PathBuf> {
        if let Some(path) = std::env::var_os(self.variable).filter(|path| !path.is_empty()) {
            return Some(PathBuf::from(path)).filter(|path| path.is_file());
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        folders.extend(SERVER_FOLDERS.map(PathBuf::from));
        self.names
            .iter()
            .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
            .find(|path| path.is_file())
    }

    /// Returns the path of the program, or `None` after the running test has been reported as skipped.
    ///
    /// # Panics
    /// It is not installed and `CI=true`.
    ///
    /// ```no_run
    /// # fn main() {
    /// let Some(program) = test_kit::programs::NATS_SERVER.locate_or_skip() else { return };
    /// # }
    /// ```
    pub fn locate_or_skip(&self) -> Option<PathBuf> {
        let found = self.locate();
        if found.is_none() {
            skip(&format!("{} is not installed", self.package));
        }
        found
    }
}

/// Returns the folder of Kafka's jars, or `None` after the running test has been reported as skipped. Without the
/// variable it is the folder into which xtask fetches them, beside that of the running test's profile.
///
/// # Panics
/// There are no jars and `CI=true`.
pub fn kafka_jars() -> Option<PathBuf> {
    let named = std::env::var_os(KAFKA_VARIABLE).filter(|path| !path.is_empty());
    let beside = || {
        // A test is `target/debug/deps/NAME-…`.
        Some(std::env::current_exe().ok()?.ancestors().nth(3)?.join(KAFKA_FOLDER))
    };
    let found = named.map(PathBuf::from).or_else(beside).filter(|folder| folder.is_dir());
    if found.is_none() {
        skip("no Kafka broker: run `cargo xtask test --filter kafka` once (it needs java and mvn)");
    }
    found
}

/// Reports the running test as skipped, with the reason; the test must then return. The line goes to standard error,
/// past the capture of the test runner, and to xtask, which counts it.
///
/// # Panics
/// `CI=true`: no test may be skipped.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let strict = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!strict, "CI=true, and {test} cannot run: {reason}");
    let line = format!("skipped: {test}: {reason}\n");
    // If the line cannot be written, the report only lacks it.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os("STARLING_TEST_SKIPS") {
        let file = OpenOptions::new().create(true).append(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn kubernetes_reports_the_version_that_its_module_requires() {
        let (folder, linker) = KUBERNETES_MODULE;
        let module =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder).join("go.mod");
        let module = std::fs::read_to_string(&module).unwrap();
        let required =
            module.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
        let reported = linker.split_once("gitVersion=").map(|(_, version)| version);
        assert!(required.is_some());
        assert_eq!(reported, required);
    }
}
