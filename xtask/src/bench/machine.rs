//! Programs on cores: what is measured on one, everything else on another.

use super::Bench;
use crate::Failure;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The core of what is measured.
const MEASURED_CORE: &str = "0";

/// The core of everything else.
pub(super) const OTHER_CORE: &str = "1";

/// How long a program may take until it serves; the slowest start in a virtual machine of their own.
const START_MAX: Duration = Duration::from_secs(60);

/// Between two looks at whether it serves.
const LOOK: Duration = Duration::from_millis(20);

/// Between two looks at what happens while the load generator runs.
const WATCH: Duration = Duration::from_millis(200);

/// How long one ready check waits for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Subgraphs of the federation benchmark, as their supergraph names them.
const BENCHMARK_SUBGRAPHS: [&str; 4] = ["accounts", "inventory", "products", "reviews"];

/// A program that serves; killed when dropped.
pub(super) struct Serving {
    child: Child,
    pub(super) address: SocketAddr,
    /// The path of its GraphQL endpoint.
    pub(super) path: String,
    /// The admin listener of a router that was told where to have it.
    pub(super) admin: Option<SocketAddr>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}{}", self.address, self.path)
    }

    /// Resident memory now, and the most there was, in MiB.
    pub(super) fn resident_mib(&self) -> (f64, f64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.unwrap_or_default();
        let kib = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key));
            let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
            number.unwrap_or(0.0) / 1024.0
        };
        (kib("VmRSS:"), kib("VmHWM:"))
    }
}

/// Whether there are two cores to keep things apart, and the program that does it.
pub(super) fn has_two_cores() -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        return Err("this needs two cores: one for what is measured, one for the rest".to_owned());
    }
    let taskset = Command::new("taskset").arg("--version").stdout(Stdio::null()).status();
    taskset.map(|_| ()).map_err(|error| format!("cannot run `taskset` (util-linux): {error}"))
}

/// A load generator that runs.
pub(super) struct RunningLoad {
    child: Child,
    report: PathBuf,
}

impl RunningLoad {
    /// Calls `look` again and again until its end and answers with its report.
    pub(super) fn finish_watching(
        mut self,
        mut look: impl FnMut() -> Result<(), Failure>,
    ) -> Result<serde_json::Value, Failure> {
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            look()?;
            std::thread::sleep(WATCH);
        }
        self.finish()
    }

    /// Waits for its end and answers with its report.
    pub(super) fn finish(mut self) -> Result<serde_json::Value, Failure> {
        // A status of 1 may mean that something was lost; the report says so. No report is another matter.
        let status =
            self.child.wait().map_err(|error| format!("the load generator is gone: {error}"))?;
        read_report(&self.report, status)
    }
}

/// The first run of a report.
fn read_report(
    path: &Path,
    status: std::process::ExitStatus,
) -> Result<serde_json::Value, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|_| format!("the load generator left no report ({status})"))?;
    let runs: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| format!("the report of the load generator: {error}"))?;
    Ok(runs[0].clone())
}

/// One run of the load generator.
pub(super) struct LoadRun<'a> {
    pub(super) name: &'a str,
    pub(super) operation: &'a Path,
    pub(super) connections: u32,
    /// Further words of `starling bench query`.
    pub(super) extra: Vec<String>,
}

impl Bench {
    /// The least work there is, on the core of what is measured.
    pub(super) fn start_floor(&self, answer: &Path) -> Result<Serving, Failure> {
        let address = free_address()?;
        let mut command = pinned(MEASURED_CORE, &self.tool);
        command.args(["bench", "floor", "--listen", &address.to_string(), "--file"]).arg(answer);
        self.started(command, "floor", address, "/".to_owned(), None)
    }

    /// The four subgraphs of the benchmark.
    pub(super) fn start_subgraphs(&self, delay_ms: u32) -> Result<Serving, Failure> {
        let address = free_address()?;
        let mut command = pinned(OTHER_CORE, &self.subgraphs);
        command.args(["--listen", &address.to_string(), "--delay-ms", &delay_ms.to_string()]);
        self.started(command, "subgraphs", address, "/accounts".to_owned(), None)
    }

    /// Mocks for all subgraphs of a supergraph.
    pub(super) fn start_mock(&self, supergraph: &Path) -> Result<Serving, Failure> {
        self.start_mock_with(supergraph, &[])
    }

    /// The same, with further words of `starling mock`.
    pub(super) fn start_mock_with(
        &self,
        supergraph: &Path,
        words: &[&str],
    ) -> Result<Serving, Failure> {
        let address = free_address()?;
        let mut command = pinned(OTHER_CORE, &self.tool);
        command.args(["mock", "--listen", &address.to_string()]).args(words);
        command.arg("--supergraph").arg(supergraph);
        self.started(command, "mock", address, "/".to_owned(), None)
    }

    /// The router under test, as the `start` script of its folder says. It serves the supergraph with its subgraphs at
    /// this address, and is ready when it answers this operation.
    pub(super) fn start_router(
        &self,
        supergraph: &Path,
        subgraph_names: &[&str],
        subgraphs: SocketAddr,
        operation: &Path,
    ) -> Result<Serving, Failure> {
        let folder = self.root.join("benches/routers").join(&self.router);
        let script = folder.join("start");
        if !script.is_file() {
            return Err(format!("there is no benches/routers/{}/start", self.router));
        }
        let scratch = self.reports.join("scratch").join(&self.router);
        std::fs::create_dir_all(&scratch)
            .map_err(|error| format!("{}: {error}", scratch.display()))?;
        // Most routers read the subgraphs' places from the supergraph and nowhere else.
        let text = std::fs::read_to_string(supergraph)
            .map_err(|error| format!("{}: {error}", supergraph.display()))?;
        let placed = scratch.join("supergraph.graphql");
        write(&placed, &with_urls(&text, subgraph_names, subgraphs))?;
        let address = free_address()?;
        let mut command = pinned(MEASURED_CORE, &script);
        command
            .current_dir(&scratch)
            .env("STARLING", &self.starling)
            .env("ROUTER_FOLDER", &folder)
            .env("ROUTER_PORT", address.port().to_string())
            .env("ROUTER_SUPERGRAPH", &placed);
        let path = std::fs::read_to_string(folder.join("path")).unwrap_or_default();
        let path = if path.trim().is_empty() { "/graphql" } else { path.trim() }.to_owned();
        let operation = std::fs::read_to_string(operation)
            .map_err(|error| format!("{}: {error}", operation.display()))?;
        let body = serde_json::json!({ "query": operation }).to_string();
        self.started(command, &self.router, address, path, Some(&body))
    }

    /// Starling with a configuration of its own.
    pub(super) fn start_starling(
        &self,
        config: &Path,
        supergraph: &Path,
    ) -> Result<Serving, Failure> {
        let (address, admin) = (free_address()?, free_address()?);
        let mut command = pinned(MEASURED_CORE, &self.starling);
        command.arg("serve").arg("--config").arg(config).arg("--supergraph").arg(supergraph);
        command.args(["--listen", &address.to_string(), "--admin-listen", &admin.to_string()]);
        let body = r#"{"query":"{ __typename }"}"#;
        let mut serving =
            self.started(command, "starling", address, "/graphql".to_owned(), Some(body))?;
        serving.admin = Some(admin);
        Ok(serving)
    }

    /// The same where the configuration says that it listens at `address`, and how.
    pub(super) fn start_starling_at(
        &self,
        config: &Path,
        supergraph: &Path,
        address: SocketAddr,
    ) -> Result<Serving, Failure> {
        let admin = free_address()?;
        let mut command = pinned(MEASURED_CORE, &self.starling);
        command.arg("serve").arg("--config").arg(config).arg("--supergraph").arg(supergraph);
        command.args(["--admin-listen", &admin.to_string()]);
        let mut serving =
            self.started(command, "starling", address, "/graphql".to_owned(), None)?;
        serving.admin = Some(admin);
        Ok(serving)
    }

    /// A broker, beside the load generator; `words` are its arguments for the address that it is to have.
    pub(super) fn start_beside(
        &self,
        what: &str,
        program: &Path,
        words: impl FnOnce(SocketAddr) -> Vec<String>,
    ) -> Result<Serving, Failure> {
        let address = free_address()?;
        let mut command = pinned(OTHER_CORE, program);
        command.args(words(address));
        self.started(command, what, address, String::new(), None)
    }

    /// The least work that sending an event to all clients is, with the message of another server.
    pub(super) fn start_broadcast_floor(
        &self,
        message: &str,
        nats: SocketAddr,
        subject: &str,
    ) -> Result<Serving, Failure> {
        let address = free_address()?;
        let mut command = pinned(MEASURED_CORE, &self.tool);
        command.args(["bench", "floor", "--subscriptions", "--listen", &address.to_string()]);
        command.args(["--message", message, "--events", &format!("nats://{nats}/{subject}")]);
        self.started(command, "floor", address, "/".to_owned(), None)
    }

    /// Runs `starling bench subscriptions` against a server and answers with its report.
    pub(super) fn subscriptions(
        &self,
        server: &Serving,
        words: Vec<String>,
    ) -> Result<serde_json::Value, Failure> {
        self.begin_subscriptions(server, words)?.finish()
    }

    /// Begins the same and lets it run.
    pub(super) fn begin_subscriptions(
        &self,
        server: &Serving,
        words: Vec<String>,
    ) -> Result<RunningLoad, Failure> {
        let report = self.reports.join("subscriptions-run.json");
        let _ = std::fs::remove_file(&report);
        let mut command = pinned(OTHER_CORE, &self.tool);
        command
            .args(["bench", "subscriptions", "--quiet", "--pid", &server.pid().to_string()])
            .arg("--json")
            .arg(&report)
            .args(&words)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if !words.iter().any(|word| word == "--url") {
            command.args(["--url", &server.url().replacen("http", "ws", 1)]);
        }
        let child =
            command.spawn().map_err(|error| format!("cannot run the load generator: {error}"))?;
        Ok(RunningLoad { child, report })
    }

    /// The router in front of the benchmark's subgraphs.
    pub(super) fn start_benchmark_router(&self, subgraphs: &Serving) -> Result<Serving, Failure> {
        let folder = self.file("fixtures/federation-benchmark");
        self.start_router(
            &folder.join("supergraph.graphql"),
            &BENCHMARK_SUBGRAPHS,
            subgraphs.address,
            &folder.join("operation.graphql"),
        )
    }

    /// Runs the load generator and answers with its report.
    pub(super) fn load(
        &self,
        server: &Serving,
        run: &LoadRun<'_>,
    ) -> Result<serde_json::Value, Failure> {
        let report = self.reports.join("run.json");
        let mut command = pinned(OTHER_CORE, &self.tool);
        command
            .args(["bench", "query", "--quiet", "--warmup", "1s", "--name", run.name])
            .args(["--url", &server.url(), "--pid", &server.pid().to_string()])
            .args(["--connections", &run.connections.to_string()])
            .args(["--duration", &format!("{}s", self.seconds), "--operation"])
            .arg(run.operation)
            .arg("--json")
            .arg(&report)
            .args(&run.extra)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // A status of 1 may mean failed requests; the report says so. No report is another matter.
        let _ = std::fs::remove_file(&report);
        let status =
            command.status().map_err(|error| format!("cannot run the load generator: {error}"))?;
        read_report(&report, status)
    }

    /// Writes the runs as JSON and as a page, side by side.
    pub(super) fn report(&self, name: &str, runs: &[serde_json::Value]) -> Result<(), Failure> {
        let json = self.reports.join(format!("{name}.json"));
        let html = self.reports.join(format!("{name}.html"));
        write(&json, &format!("{:#}\n", serde_json::Value::from(runs)))?;
        let mut command = Command::new(&self.tool);
        command.args(["bench", "report", "--title", name, "--html"]).arg(&html).arg(&json);
        let status = command.stdout(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => {
                println!("\n{}\n{}", json.display(), html.display());
                Ok(())
            }
            _ => Err("cannot write the report's page".to_owned()),
        }
    }

    /// What a program that serves, or served last, has said.
    pub(super) fn log(&self, what: &str) -> Result<String, Failure> {
        let path = self.reports.join(format!("{what}.log"));
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Starts a program and waits until it serves.
    pub(super) fn started(
        &self,
        mut command: Command,
        what: &str,
        address: SocketAddr,
        path: String,
        operation: Option<&str>,
    ) -> Result<Serving, Failure> {
        let log = self.reports.join(format!("{what}.log"));
        let file = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = file.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("cannot start {what}: {error}"))?;
        let mut serving = Serving { child, address, path, admin: None };
        let deadline = Instant::now() + START_MAX;
        loop {
            if serving.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(format!("{what} has ended; see {}", log.display()));
            }
            let ready = match operation {
                None => TcpStream::connect(address).is_ok(),
                Some(body) => answers(address, &serving.path, body),
            };
            if ready {
                return Ok(serving);
            }
            if Instant::now() > deadline {
                return Err(format!("{what} does not serve; see {}", log.display()));
            }
            std::thread::sleep(LOOK);
        }
    }
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A supergraph whose subgraphs are at this address, each at its name.
pub(super) fn with_urls(supergraph: &str, names: &[&str], address: SocketAddr) -> String {
    let mut placed = String::new();
    for line in supergraph.split_inclusive('\n') {
        let name = names.iter().find(|name| line.contains(&format!("name: \"{name}\"")));
        match (name, line.split_once("url: \"")) {
            (Some(name), Some((before, after))) => {
                let after = after.split_once('"').map_or("", |(_, rest)| rest);
                placed.push_str(&format!("{before}url: \"http://{address}/{name}\"{after}"));
            }
            _ => placed.push_str(line),
        }
    }
    placed
}

/// A program on one core.
pub(super) fn pinned(core: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", core]).arg(program);
    command
}

pub(super) fn free_address() -> Result<SocketAddr, Failure> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map_err(|error| format!("no free port: {error}"))
}

/// Whether an operation is answered without errors.
fn answers(address: SocketAddr, path: &str, body: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: application/json\r\n\
             connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200") && !answer.contains("\"errors\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subgraphs_are_put_where_they_serve() {
        let supergraph = "  A @join__graph(name: \"a\", url: \"http://x:1/q\")\n  B\n    @join__graph(name: \"b\", url: \"\")\n  C\n";
        let placed = with_urls(supergraph, &["a", "b"], "127.0.0.1:9".parse().unwrap());
        assert_eq!(
            placed,
            "  A @join__graph(name: \"a\", url: \"http://127.0.0.1:9/a\")\n  B\n    @join__graph(name: \"b\", url: \"http://127.0.0.1:9/b\")\n  C\n"
        );
    }
}
