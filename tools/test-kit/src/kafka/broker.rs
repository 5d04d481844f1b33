//! A Kafka broker for tests, which can be stopped and started again. It needs `java` and the jars of [`kafka_jars`].

use super::command_line::{broker_arguments, format_arguments, java_arguments, settings};
use crate::programs::kafka_jars;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The maximum time from start to open port; it takes some three seconds on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between two readiness checks.
const READINESS_INTERVAL: Duration = Duration::from_millis(20);

/// The maximum number of starts, each with other ports, if another process takes a free port before the broker does.
const STARTS_MAX: usize = 3;

/// The settings of a broker that needs only 192 MB.
const SMALL_SETTINGS: &str = include_str!("../../kafka/small.properties");

/// The settings of the listener with TLS and SASL, and of permissions, which concern only its user.
const SECURITY_SETTINGS: &str = "\
listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
";

/// The flags of the virtual machine of a broker. The first compiler alone starts faster.
const BROKER_FLAGS: [&str; 2] = ["-Xmx192m", "-XX:TieredStopAtLevel=1"];

/// The flags of the virtual machine of an administrator's tool.
const TOOL_FLAGS: [&str; 2] = ["-Xmx64m", "-XX:TieredStopAtLevel=1"];

/// The user of the listener with TLS and SASL.
pub const USER: &str = "starling";

/// The password of [`USER`].
pub const PASSWORD: &str = "correct-horse";

/// A shell script that runs the broker while its own input is open. When the input closes, however the test ended, it
/// ends the broker and removes the folder in its first argument, if there is one.
const KEEPER: &str = r#"folder=$1; shift; "$@" </dev/null & broker=$!; echo $broker; cat >/dev/null
kill -9 $broker; wait $broker; if [ -n "$folder" ]; then rm -rf "$folder"; fi"#;

/// A broker on 127.0.0.1 with a plain listener and one with TLS and SASL, killed on drop.
pub struct KafkaBroker {
    folder: TempDir,
    jars: PathBuf,
    plain: SocketAddr,
    secure: SocketAddr,
    controller: Controller,
    /// True if the keeper removes the folder. Otherwise it is removed with this value.
    keeper_removes_folder: bool,
    keeper: Option<Keeper>,
}

/// The node that leads the cluster.
#[derive(Clone, Copy)]
enum Controller {
    /// This node, at the address.
    Own(SocketAddr),
    /// Another node, at the address.
    Other(SocketAddr),
}

impl Controller {
    fn address(self) -> SocketAddr {
        match self {
            Self::Own(address) | Self::Other(address) => address,
        }
    }
}

/// The running [`KEEPER`], which ends when its input is dropped.
struct Keeper {
    process: Child,
    input: Option<ChildStdin>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

impl KafkaBroker {
    /// Starts a broker; `None` if there are no jars.
    ///
    /// # Panics
    /// The broker does not start, or with `CI=true` there are no jars.
    pub fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// Starts a broker with further lines of settings.
    ///
    /// # Panics
    /// See [`KafkaBroker::start`].
    pub fn start_with(extra: &str) -> Option<Self> {
        kafka_jars().map(|jars| Self::start_node(&jars, extra, None, false))
    }

    /// Starts a second node of the cluster that the first one leads. Its number is 2.
    ///
    /// # Panics
    /// The node does not start.
    #[must_use]
    pub fn start_beside(first: &Self, extra: &str) -> Self {
        Self::start_node(&first.jars, extra, Some(first.controller.address()), false)
    }

    /// Returns the broker that the tests of a program share if they do not harm it. It ends with the process.
    ///
    /// # Panics
    /// See [`KafkaBroker::start`].
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<KafkaBroker> = OnceLock::new();
        let jars = kafka_jars()?;
        // A static value is never dropped, so the keeper must remove the folder.
        Some(SHARED.get_or_init(|| Self::start_node(&jars, "", None, true)))
    }

    fn start_node(
        jars: &Path,
        extra: &str,
        leader: Option<SocketAddr>,
        keeper_removes_folder: bool,
    ) -> Self {
        for _ in 0..STARTS_MAX {
            let [plain, secure, own] =
                crate::free_addresses().unwrap_or_else(|error| panic!("no port: {error}"));
            let mut broker = Self {
                folder: tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}")),
                jars: jars.to_owned(),
                plain,
                secure,
                controller: leader.map_or(Controller::Own(own), Controller::Other),
                keeper_removes_folder,
                keeper: None,
            };
            broker.write_settings(extra);
            broker.format_storage();
            if broker.try_run() {
                return broker;
            }
        }
        panic!("the Kafka broker did not start, {STARTS_MAX} times");
    }

    /// Returns the address of the plain listener.
    pub fn address(&self) -> String {
        self.plain.to_string()
    }

    /// Returns the address of the listener with TLS and SASL. Its certificate is for `localhost`.
    pub fn secure_address(&self) -> String {
        format!("localhost:{}", self.secure.port())
    }

    /// Kills the broker. Confirmed events are in its files.
    pub fn stop(&mut self) {
        self.keeper = None;
    }

    /// Starts the broker again at the same ports.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&mut self) {
        assert!(self.try_run(), "the Kafka broker did not start again");
    }

    /// Hides the events of a topic from [`USER`], which still sees the topic, or shows them again.
    ///
    /// # Panics
    /// The broker refuses the change.
    pub fn hide_events(&self, topic: &str, hide: bool) {
        let action: &[&str] = if hide { &["--add"] } else { &["--remove", "--force"] };
        self.change_permissions(topic, action, "User:*");
    }

    /// Hides a topic from [`USER`].
    ///
    /// # Panics
    /// The broker refuses the change.
    pub fn hide_topic(&self, topic: &str) {
        // With a permission for another user, all others have none.
        self.change_permissions(topic, &["--add"], "User:nobody");
    }

    fn change_permissions(&self, topic: &str, action: &[&str], principal: &str) {
        let address = self.address();
        let tool = ["org.apache.kafka.tools.AclCommand", "--bootstrap-server", &address];
        let permission =
            ["--topic", topic, "--operation", "Describe", "--allow-principal", principal];
        let words = [&tool, action, &permission].concat();
        run_java(java_arguments(&self.jars, &TOOL_FLAGS, &words), "changing permissions");
    }

    fn settings_file(&self) -> PathBuf {
        self.folder.path().join("server.properties")
    }

    fn write_settings(&self, extra: &str) {
        let certificates = crate::certificates();
        let read = |name: &str| {
            let text = std::fs::read_to_string(certificates.join(name));
            text.unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let (data, key) = (self.folder.path().join("data"), self.folder.path().join("own.pem"));
        write_file(&key, &(read("localhost.key") + &read("localhost.pem")));
        let (plain, secure) = (self.address(), self.secure_address());
        // A node that does not lead the cluster has another role and no listener for the others.
        let role = match self.controller {
            Controller::Own(controller) => format!("listeners=CONTROLLER://{controller},"),
            Controller::Other(_) => "process.roles=broker\nnode.id=2\nlisteners=".to_owned(),
        };
        let sasl = "org.apache.kafka.common.security";
        let own = format!(
            "{SMALL_SETTINGS}{SECURITY_SETTINGS}\
             {role}PLAIN://{plain},SECURE://{secure}
advertised.listeners=PLAIN://{plain},SECURE://{secure}
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={key}
listener.name.secure.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.secure.plain.sasl.jaas.config={sasl}.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";
listener.name.secure.scram-sha-256.sasl.jaas.config={sasl}.scram.ScramLoginModule required;
listener.name.secure.scram-sha-512.sasl.jaas.config={sasl}.scram.ScramLoginModule required;
listener.name.secure.oauthbearer.sasl.jaas.config={sasl}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";
{extra}
",
            key = key.display(),
        );
        let text = settings(self.plain, self.controller.address(), &data, &own);
        write_file(&self.settings_file(), &text);
    }

    /// Formats the storage. The node that leads the cluster stores its users.
    fn format_storage(&self) {
        let mut arguments = format_arguments(&self.jars, &self.settings_file());
        if matches!(self.controller, Controller::Own(_)) {
            for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
                let user = format!("{mechanism}=[name={USER},password={PASSWORD}]");
                arguments.extend(["--add-scram".to_owned(), user]);
            }
        }
        run_java(arguments, "formatting the storage of the broker");
    }

    /// Starts the broker and returns true if it has opened its port in time.
    fn try_run(&mut self) -> bool {
        let mut process = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(if self.keeper_removes_folder { self.folder.path() } else { Path::new("") })
            .arg("java")
            .args(broker_arguments(&self.jars, &BROKER_FLAGS, &self.settings_file()))
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start sh: {error}"));
        let (input, output) = (process.stdin.take(), process.stdout.take());
        self.keeper = Some(Keeper { process, input });
        // The keeper prints the process id of the broker first.
        let mut broker = String::new();
        if let Some(output) = output {
            let mut output = BufReader::new(output);
            let _ = output.read_line(&mut broker);
            // Further output must not fill the pipe.
            std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        }
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if TcpStream::connect(self.plain).is_ok() {
                return true;
            }
            if !is_running(broker.trim()) {
                break;
            }
            sleep(READINESS_INTERVAL);
        }
        self.keeper = None;
        false
    }
}

fn is_running(process: &str) -> bool {
    let status = Command::new("kill").args(["-0", process]).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn run_java(arguments: Vec<String>, purpose: &str) {
    let output = Command::new("java").args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run java: {error}"));
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{purpose}: {}", String::from_utf8_lossy(&text));
}

fn write_file(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
