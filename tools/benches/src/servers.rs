//! The servers of the measurements: the floors, subgraphs, mocks, routers and brokers, each with its command line and
//! its core.

use crate::server_process::{
    MEASURED_CORE, OTHER_CORE, ServerProcess, free_address, free_addresses, pinned_command,
};
use crate::setup::{Bench, read_file, write_file};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use test_kit::commands::Failure;

/// The subgraphs of `benches/items`, as named in its supergraph: the list of items, and a part of each by its key.
pub(crate) const ITEMS_SUBGRAPHS: [&str; 2] = ["items", "prices"];

/// The subgraphs of the federation benchmark, as named in its supergraph.
pub(crate) const BENCHMARK_SUBGRAPHS: [&str; 4] = ["accounts", "inventory", "products", "reviews"];

impl Bench {
    /// Starts the floor on the measured core: a server that sends a fixed response, the least work possible.
    pub(crate) fn start_floor(&self, response: &Path) -> Result<ServerProcess, Failure> {
        let address = free_address()?;
        let mut command = pinned_command(MEASURED_CORE, &self.tool);
        command.args(["bench", "floor", "--listen", &address.to_string(), "--file"]).arg(response);
        self.start_server(command, "floor", address, "/".to_owned(), None)
    }

    /// Starts the four subgraphs of the federation benchmark.
    pub(crate) fn start_subgraphs(&self, delay_ms: u32) -> Result<ServerProcess, Failure> {
        let address = free_address()?;
        let mut command = pinned_command(OTHER_CORE, &self.subgraphs);
        command.args(["--listen", &address.to_string(), "--delay-ms", &delay_ms.to_string()]);
        self.start_server(command, "subgraphs", address, "/accounts".to_owned(), None)
    }

    /// Starts mocks for all subgraphs of a supergraph.
    pub(crate) fn start_mock(&self, supergraph: &Path) -> Result<ServerProcess, Failure> {
        self.start_mock_with(supergraph, &[])
    }

    /// Starts mocks for all subgraphs of a supergraph, with further arguments of `starling mock`.
    pub(crate) fn start_mock_with(
        &self,
        supergraph: &Path,
        arguments: &[&str],
    ) -> Result<ServerProcess, Failure> {
        let address = free_address()?;
        let mut command = pinned_command(OTHER_CORE, &self.tool);
        command.args(["mock", "--listen", &address.to_string()]).args(arguments);
        command.arg("--supergraph").arg(supergraph);
        self.start_server(command, "mock", address, "/".to_owned(), None)
    }

    /// Starts the router under test with the `start` script of its folder, after its `install` script if there is one.
    /// It serves the supergraph with its subgraphs at the given address, and is ready when it responds to `operation`
    /// without errors.
    pub(crate) fn start_router(
        &self,
        supergraph: &Path,
        subgraph_names: &[&str],
        subgraphs: SocketAddr,
        operation: &Path,
    ) -> Result<ServerProcess, Failure> {
        let folder = self.file("benches/routers").join(&self.router);
        let script = folder.join("start");
        if !script.is_file() {
            return Err(format!("there is no benches/routers/{}/start", self.router));
        }
        let scratch = self.scratch_folder(&self.router)?;
        // Most routers take the URLs of subgraphs from the supergraph only.
        let text = read_file(supergraph)?;
        let placed = scratch.join("supergraph.graphql");
        write_file(&placed, &replace_subgraph_urls(&text, subgraph_names, subgraphs))?;
        let install = folder.join("install");
        if install.is_file() {
            let failed = || format!("benches/routers/{}/install has failed", self.router);
            let mut command = Command::new(&install);
            command.current_dir(&scratch).env("ROUTER_FOLDER", &folder).stdin(Stdio::null());
            if !command.status().map_err(|error| format!("{}: {error}", failed()))?.success() {
                return Err(failed());
            }
        }
        let address = free_address()?;
        let mut command = pinned_command(MEASURED_CORE, &script);
        command
            .current_dir(&scratch)
            .env("STARLING", &self.starling)
            .env("ROUTER_FOLDER", &folder)
            .env("ROUTER_PORT", address.port().to_string())
            .env("ROUTER_SUPERGRAPH", &placed);
        let path = std::fs::read_to_string(folder.join("path")).unwrap_or_default();
        let path = if path.trim().is_empty() { "/graphql" } else { path.trim() }.to_owned();
        let body = serde_json::json!({ "query": read_file(operation)? }).to_string();
        self.start_server(command, &self.router, address, path, Some(&body))
    }

    /// Starts Starling with the given configuration file.
    pub(crate) fn start_starling(
        &self,
        config: &Path,
        supergraph: &Path,
    ) -> Result<ServerProcess, Failure> {
        let [address, admin] = free_addresses()?;
        let mut command = pinned_command(MEASURED_CORE, &self.starling);
        command.arg("serve").arg("--config").arg(config).arg("--supergraph").arg(supergraph);
        command.args(["--listen", &address.to_string(), "--admin-listen", &admin.to_string()]);
        let body = r#"{"query":"{ __typename }"}"#;
        let mut server =
            self.start_server(command, "starling", address, "/graphql".to_owned(), Some(body))?;
        server.admin = Some(admin);
        Ok(server)
    }

    /// Starts Starling with this configuration in front of the mocked subgraphs of `benches/items`. Its files are in the
    /// scratch folder `name`.
    pub(crate) fn start_items_router(
        &self,
        name: &str,
        config: &str,
        mock: &ServerProcess,
    ) -> Result<ServerProcess, Failure> {
        let folder = self.scratch_folder(name)?;
        let (file, supergraph) = (folder.join("starling.yaml"), folder.join("supergraph.graphql"));
        write_file(&file, config)?;
        let text = read_file(&self.file("benches/items/supergraph.graphql"))?;
        write_file(&supergraph, &replace_subgraph_urls(&text, &ITEMS_SUBGRAPHS, mock.address))?;
        self.start_starling(&file, &supergraph)
    }

    /// Starts Starling with a configuration that itself sets the listener to `address`.
    pub(crate) fn start_starling_at(
        &self,
        config: &Path,
        supergraph: &Path,
        address: SocketAddr,
    ) -> Result<ServerProcess, Failure> {
        let admin = free_address()?;
        let mut command = pinned_command(MEASURED_CORE, &self.starling);
        command.arg("serve").arg("--config").arg(config).arg("--supergraph").arg(supergraph);
        command.args(["--admin-listen", &admin.to_string()]);
        let mut server =
            self.start_server(command, "starling", address, "/graphql".to_owned(), None)?;
        server.admin = Some(admin);
        Ok(server)
    }

    /// Starts a broker on the load generator's core. `arguments` returns its command line for the address it must use.
    pub(crate) fn start_broker(
        &self,
        name: &str,
        program: &Path,
        arguments: impl FnOnce(SocketAddr) -> Vec<String>,
    ) -> Result<ServerProcess, Failure> {
        let address = free_address()?;
        let mut command = pinned_command(OTHER_CORE, program);
        command.args(arguments(address));
        self.start_server(command, name, address, String::new(), None)
    }

    /// Starts the broadcast floor: a server that sends a fixed `message` to all clients for each event, the least work
    /// possible.
    pub(crate) fn start_broadcast_floor(
        &self,
        message: &str,
        nats: SocketAddr,
        subject: &str,
    ) -> Result<ServerProcess, Failure> {
        let address = free_address()?;
        let mut command = pinned_command(MEASURED_CORE, &self.tool);
        command.args(["bench", "floor", "--subscriptions", "--listen", &address.to_string()]);
        command.args(["--message", message, "--events", &format!("nats://{nats}/{subject}")]);
        self.start_server(command, "floor", address, "/".to_owned(), None)
    }

    /// Starts the router under test in front of the benchmark's subgraphs.
    pub(crate) fn start_benchmark_router(
        &self,
        subgraphs: &ServerProcess,
    ) -> Result<ServerProcess, Failure> {
        let folder = self.file("fixtures/federation-benchmark");
        self.start_router(
            &folder.join("supergraph.graphql"),
            &BENCHMARK_SUBGRAPHS,
            subgraphs.address,
            &folder.join("operation.graphql"),
        )
    }
}

/// Sets the URLs of the named subgraphs in a supergraph to `http://ADDRESS/NAME`.
pub(crate) fn replace_subgraph_urls(
    supergraph: &str,
    names: &[&str],
    address: SocketAddr,
) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subgraph_urls_are_replaced_by_their_address() {
        let supergraph = "  A @join__graph(name: \"a\", url: \"http://x:1/q\")\n  B\n    @join__graph(name: \"b\", url: \"\")\n  C\n";
        let placed = replace_subgraph_urls(supergraph, &["a", "b"], "127.0.0.1:9".parse().unwrap());
        assert_eq!(
            placed,
            "  A @join__graph(name: \"a\", url: \"http://127.0.0.1:9/a\")\n  B\n    @join__graph(name: \"b\", url: \"http://127.0.0.1:9/b\")\n  C\n"
        );
    }
}
