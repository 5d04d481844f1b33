//! Runs of the load generator, `starling bench`, against a server process, and its reports.

use crate::server_process::{OTHER_CORE, ServerProcess, pinned_command};
use crate::setup::{Bench, write_file};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use test_kit::commands::Failure;

/// The interval between two observations while the load generator runs.
const OBSERVATION_INTERVAL: Duration = Duration::from_millis(200);

/// The parameters of one run of the load generator.
pub(crate) struct LoadRun<'a> {
    pub(crate) name: &'a str,
    /// The file of the operation; `None` if further arguments name it otherwise.
    pub(crate) operation: Option<&'a Path>,
    pub(crate) connections: u32,
    /// Further arguments of `starling bench query`.
    pub(crate) extra: Vec<String>,
}

/// The parameters of one run of the load generator with a fixed rate of requests, beside other work.
pub(crate) struct RateRun<'a> {
    pub(crate) name: &'a str,
    /// The file of the operation.
    pub(crate) operation: &'a Path,
    /// Requests a second.
    pub(crate) rate: u32,
    pub(crate) connections: u32,
    /// The measured seconds.
    pub(crate) seconds: u32,
    /// The file for the report.
    pub(crate) report: PathBuf,
    /// Further arguments of `starling bench query`.
    pub(crate) extra: Vec<String>,
}

/// The priority of a load generator beside the mocks and the other load generators on its core.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Priority {
    Normal,
    /// The others come first.
    Low,
}

impl Priority {
    /// Returns the nice value, for the command `nice`.
    fn niceness(self) -> &'static str {
        match self {
            Self::Normal => "0",
            Self::Low => "10",
        }
    }
}

/// A running load generator, killed on drop.
pub(crate) struct RunningLoad {
    child: Child,
    report: PathBuf,
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        // The process has ended unless the measurement failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RunningLoad {
    /// True until the load generator has ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Calls `observe` at intervals until the load generator ends, then returns its report.
    pub(crate) fn observe_to_end(
        mut self,
        mut observe: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Value, Failure> {
        while self.is_running() {
            observe()?;
            std::thread::sleep(OBSERVATION_INTERVAL);
        }
        self.finish()
    }

    /// Waits until the load generator ends and returns its report.
    pub(crate) fn finish(mut self) -> Result<Value, Failure> {
        // Status 1 may mean that events were lost, which the report states. Only a missing report is a failure here.
        let status = self
            .child
            .wait()
            .map_err(|error| format!("cannot wait for the load generator: {error}"))?;
        read_report(&self.report, status)
    }
}

impl Bench {
    /// Runs `starling bench query` against a server and returns its report.
    pub(crate) fn run_query_load(
        &self,
        server: &ServerProcess,
        run: &LoadRun<'_>,
    ) -> Result<Value, Failure> {
        let report = self.reports.join("run.json");
        let mut command = pinned_command(OTHER_CORE, &self.tool);
        command
            .args(["bench", "query", "--quiet", "--warmup", "1s", "--name", run.name])
            .args(["--url", &server.url(), "--pid", &server.pid().to_string()])
            .args(["--connections", &run.connections.to_string()])
            .args(["--duration", &format!("{}s", self.seconds), "--json"])
            .arg(&report)
            .args(&run.extra)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if let Some(operation) = run.operation {
            command.arg("--operation").arg(operation);
        }
        // Status 1 may mean failed requests, which the report states. Only a missing report is a failure here.
        let _ = std::fs::remove_file(&report);
        let status =
            command.status().map_err(|error| format!("cannot run the load generator: {error}"))?;
        read_report(&report, status)
    }

    /// Starts `starling bench query` against a server with a fixed rate of requests, without waiting for its end.
    pub(crate) fn start_query_load(
        &self,
        server: &ServerProcess,
        run: RateRun<'_>,
    ) -> Result<RunningLoad, Failure> {
        let _ = std::fs::remove_file(&run.report);
        let mut command = pinned_command(OTHER_CORE, &self.tool);
        command
            .args(["bench", "query", "--quiet", "--name", run.name, "--url", &server.url()])
            .args(["--rate", &run.rate.to_string()])
            .args(["--connections", &run.connections.to_string()])
            .args(["--duration", &format!("{}s", run.seconds), "--operation"])
            .arg(run.operation)
            .arg("--json")
            .arg(&run.report)
            .args(&run.extra)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child =
            command.spawn().map_err(|error| format!("cannot run the load generator: {error}"))?;
        Ok(RunningLoad { child, report: run.report })
    }

    /// Runs `starling bench surge` against a server and returns its report.
    pub(crate) fn run_surge(
        &self,
        server: &ServerProcess,
        name: &str,
        arguments: &[String],
    ) -> Result<Value, Failure> {
        self.start_surge(server, name, arguments)?.finish()
    }

    /// Starts `starling bench surge` against a server without waiting for its end. Runs at the same time have different
    /// names.
    pub(crate) fn start_surge(
        &self,
        server: &ServerProcess,
        name: &str,
        arguments: &[String],
    ) -> Result<RunningLoad, Failure> {
        self.start_surge_with_priority(server, name, arguments, Priority::Normal)
    }

    /// Does what [`Bench::start_surge`] does, with a priority.
    pub(crate) fn start_surge_with_priority(
        &self,
        server: &ServerProcess,
        name: &str,
        arguments: &[String],
        priority: Priority,
    ) -> Result<RunningLoad, Failure> {
        let file = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let report = self.reports.join(format!("surge-run-{file}.json"));
        let _ = std::fs::remove_file(&report);
        let mut command = pinned_command(OTHER_CORE, "nice");
        command
            .args(["-n", priority.niceness()])
            .arg(&self.tool)
            .args(["bench", "surge", "--quiet", "--name", name, "--url", &server.url()])
            .args(["--pid", &server.pid().to_string(), "--json"])
            .arg(&report)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child =
            command.spawn().map_err(|error| format!("cannot run the load generator: {error}"))?;
        Ok(RunningLoad { child, report })
    }

    /// Runs `starling bench subscriptions` against a server and returns its report.
    pub(crate) fn run_subscription_load(
        &self,
        server: &ServerProcess,
        arguments: Vec<String>,
    ) -> Result<Value, Failure> {
        self.start_subscription_load(server, arguments)?.finish()
    }

    /// Starts `starling bench subscriptions` against a server without waiting for its end.
    pub(crate) fn start_subscription_load(
        &self,
        server: &ServerProcess,
        arguments: Vec<String>,
    ) -> Result<RunningLoad, Failure> {
        self.start_subscription_load_with_priority(server, arguments, Priority::Normal)
    }

    /// Does what [`Bench::start_subscription_load`] does, with a priority.
    pub(crate) fn start_subscription_load_with_priority(
        &self,
        server: &ServerProcess,
        arguments: Vec<String>,
        priority: Priority,
    ) -> Result<RunningLoad, Failure> {
        let report = self.reports.join("subscriptions-run.json");
        let _ = std::fs::remove_file(&report);
        let mut command = pinned_command(OTHER_CORE, "nice");
        command
            .args(["-n", priority.niceness()])
            .arg(&self.tool)
            .args(["bench", "subscriptions", "--quiet", "--pid", &server.pid().to_string()])
            .arg("--json")
            .arg(&report)
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if !arguments.iter().any(|word| word == "--url") {
            command.args(["--url", &server.url().replacen("http", "ws", 1)]);
        }
        let child =
            command.spawn().map_err(|error| format!("cannot run the load generator: {error}"))?;
        Ok(RunningLoad { child, report })
    }

    /// Writes the runs as JSON and as an HTML page with the same name.
    pub(crate) fn write_report(&self, name: &str, runs: &[Value]) -> Result<(), Failure> {
        let json = self.reports.join(format!("{name}.json"));
        let html = self.reports.join(format!("{name}.html"));
        write_file(&json, &format!("{:#}\n", Value::from(runs)))?;
        let mut command = Command::new(&self.tool);
        command.args(["bench", "report", "--title", name, "--html"]).arg(&html).arg(&json);
        let status = command.stdout(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => {
                println!("\n{}\n{}", json.display(), html.display());
                Ok(())
            }
            _ => Err("cannot write the report as HTML".to_owned()),
        }
    }
}

/// Reads the first run of a report.
fn read_report(path: &Path, status: ExitStatus) -> Result<Value, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|_| format!("the load generator wrote no report ({status})"))?;
    let runs: Value = serde_json::from_str(&text)
        .map_err(|error| format!("the report of the load generator: {error}"))?;
    Ok(runs[0].clone())
}
