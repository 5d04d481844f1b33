//! A real Kafka broker (KRaft, one node) for tests. It is killed when the test ends.
//!
//! `cargo xtask test` fetches its jars into the target folder and names them in `STARLING_TEST_KAFKA`. A test that runs
//! without xtask looks for them where xtask would have put them.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The maximum time from start to open port; it takes some three seconds on an idle machine.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// The number of attempts to start: a port that was free may be taken before the broker opens it.
const ATTEMPTS: usize = 3;

/// The folder in the target folder where xtask puts the jars.
const FOLDER: &str = "kafka-4.3.1";

/// The settings that a broker of 192 MB needs. The cleaner would take 128 MB for itself.
const SETTINGS: &str = "
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
num.network.threads=1
num.io.threads=2
background.threads=1
num.recovery.threads.per.data.dir=1
log.cleaner.dedupe.buffer.size=4194304
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
log.initial.task.delay.ms=100
file.delete.delay.ms=100
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
";

/// The user of the secure listener.
pub(crate) const USER: &str = "starling";
pub(crate) const PASSWORD: &str = "correct-horse";

/// Keeps the broker's process while its input is open. When that closes, however the test ended, it ends the process
/// and removes the folder in its first argument, if there is one.
const KEEPER: &str = r#"folder=$1; shift; "$@" </dev/null & broker=$!; echo $broker; cat >/dev/null
kill -9 $broker; wait $broker; if [ -n "$folder" ]; then rm -rf "$folder"; fi"#;

/// A broker that may be stopped and started again.
pub(crate) struct Broker {
    folder: tempfile::TempDir,
    jars: PathBuf,
    port: u16,
    secure_port: u16,
    /// The node that leads the cluster: this one, or another.
    controller: Controller,
    /// True if the keeper removes the folder. Otherwise it is removed with this value.
    keeper_removes: bool,
    running: Option<Running>,
}

#[derive(Clone, Copy)]
enum Controller {
    /// This node leads the cluster, at this port.
    Own(u16),
    Other(u16),
}

struct Running {
    keeper: Child,
    input: Option<ChildStdin>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.keeper.wait();
    }
}

/// Returns the folder of the jars. Without it the test is skipped with a line that says so; with `CI=true` that is a
/// failure.
#[allow(clippy::print_stdout, reason = "a skipped test must be visible in the output")]
pub(crate) fn jars() -> Option<PathBuf> {
    let named = std::env::var_os("STARLING_TEST_KAFKA").map(PathBuf::from);
    let beside = || {
        let program = std::env::current_exe().ok()?;
        // The program is `target/debug/deps/kafka-…`.
        Some(program.ancestors().nth(3)?.join(FOLDER))
    };
    let found = named.or_else(beside).filter(|folder| folder.is_dir());
    if found.is_none() {
        let hint =
            "no Kafka broker: run `cargo xtask test --filter kafka` once (it needs java and mvn)";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
        println!("skipped: {hint}");
    }
    found
}

/// Returns the broker that tests share if they do not harm it. It ends with the process.
pub(crate) fn shared() -> Option<&'static Broker> {
    static SHARED: OnceLock<Option<Broker>> = OnceLock::new();
    // A static value is never dropped, so the keeper must end the broker.
    let start = || jars().map(|jars| Broker::start_any(&jars, "", None, true));
    SHARED.get_or_init(start).as_ref()
}

fn free_port() -> u16 {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("bound").port()
}

impl Broker {
    pub(crate) fn start(jars: &Path) -> Self {
        Self::start_with(jars, "")
    }

    /// Starts a broker with further settings.
    pub(crate) fn start_with(jars: &Path, settings: &str) -> Self {
        Self::start_any(jars, settings, None, false)
    }

    /// Starts a second node of the cluster that the first one leads. Its number is 2.
    pub(crate) fn start_beside(first: &Self, settings: &str) -> Self {
        let (Controller::Own(port) | Controller::Other(port)) = first.controller;
        Self::start_any(&first.jars, settings, Some(port), false)
    }

    fn start_any(
        jars: &Path,
        settings: &str,
        controller: Option<u16>,
        keeper_removes: bool,
    ) -> Self {
        for _ in 0..ATTEMPTS {
            let folder = tempfile::tempdir().expect("a folder");
            let (port, secure_port) = (free_port(), free_port());
            let controller =
                controller.map_or_else(|| Controller::Own(free_port()), Controller::Other);
            let mut broker = Self {
                folder,
                jars: jars.to_owned(),
                port,
                secure_port,
                controller,
                keeper_removes,
                running: None,
            };
            broker.format(settings);
            if broker.try_run() {
                return broker;
            }
        }
        panic!("the Kafka broker does not start");
    }

    /// Returns the address as a client names it.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the address of the listener with TLS and SASL.
    pub(crate) fn secure_address(&self) -> String {
        format!("localhost:{}", self.secure_port)
    }

    /// Kills the broker. Confirmed events are in its files.
    pub(crate) fn stop(&mut self) {
        self.running = None;
    }

    /// Starts the broker again at the same port.
    pub(crate) fn run(&mut self) {
        assert!(self.try_run(), "the broker starts again");
    }

    fn settings_file(&self) -> PathBuf {
        self.folder.path().join("server.properties")
    }

    fn format(&self, settings: &str) {
        let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../net/tests/certificates");
        let read = |name: &str| std::fs::read_to_string(certificates.join(name)).expect(name);
        let own = self.folder.path().join("own.pem");
        std::fs::write(&own, read("localhost.key") + &read("localhost.pem")).expect("written");
        let (role, controller) = match self.controller {
            Controller::Own(port) => (format!("listeners=CONTROLLER://127.0.0.1:{port},"), port),
            // If a setting occurs twice, the last value counts.
            Controller::Other(port) => {
                ("process.roles=broker\nnode.id=2\nlisteners=".to_owned(), port)
            }
        };
        let (plain, secure) = (self.port, self.secure_port);
        let sasl = "org.apache.kafka.common.security";
        let text = format!(
            "{SETTINGS}
controller.quorum.voters=1@127.0.0.1:{controller}
{role}PLAIN://127.0.0.1:{plain},SECURE://localhost:{secure}
advertised.listeners=PLAIN://127.0.0.1:{plain},SECURE://localhost:{secure}
log.dirs={data}
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={own}
listener.name.secure.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.secure.plain.sasl.jaas.config={sasl}.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";
listener.name.secure.scram-sha-256.sasl.jaas.config={sasl}.scram.ScramLoginModule required;
listener.name.secure.scram-sha-512.sasl.jaas.config={sasl}.scram.ScramLoginModule required;
listener.name.secure.oauthbearer.sasl.jaas.config={sasl}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";
{settings}
",
            data = self.folder.path().join("data").display(),
            own = own.display(),
        );
        std::fs::write(self.settings_file(), text).expect("written");
        let user = format!("[name={USER},password={PASSWORD}]");
        // The node that leads the cluster has its users.
        let users = match self.controller {
            Controller::Own(_) => ["SCRAM-SHA-256", "SCRAM-SHA-512"].as_slice(),
            Controller::Other(_) => &[],
        };
        let users = users
            .iter()
            .flat_map(|mechanism| ["--add-scram".to_owned(), format!("{mechanism}={user}")]);
        let formatted = self
            .java(&["-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .args(["kafka.tools.StorageTool", "format", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg"])
            .arg("--config")
            .arg(self.settings_file())
            .args(users)
            .stdin(Stdio::null())
            .output()
            .expect("java is there");
        let said = String::from_utf8_lossy(&formatted.stdout).into_owned()
            + &String::from_utf8_lossy(&formatted.stderr);
        assert!(formatted.status.success(), "formatting the broker's folder: {said}");
    }

    /// Allows users only to see the topic, or everything.
    pub(crate) fn hide_events(&self, topic: &str, hide: bool) {
        let action: &[&str] = if hide { &["--add"] } else { &["--remove", "--force"] };
        self.change_permissions(topic, action, "User:*");
    }

    /// Allows only a user that no test has to see the topic.
    pub(crate) fn hide(&self, topic: &str) {
        self.change_permissions(topic, &["--add"], "User:nobody");
    }

    fn change_permissions(&self, topic: &str, action: &[&str], principal: &str) {
        let done = self
            .java(&["-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .args(["org.apache.kafka.tools.AclCommand", "--bootstrap-server", &self.address()])
            .args(action)
            .args(["--topic", topic, "--operation", "Describe", "--allow-principal", principal])
            .stdin(Stdio::null())
            .output()
            .expect("java is there");
        let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "changing permissions: {said}");
    }

    fn java(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("java");
        command.args(arguments).arg("-cp").arg(self.jars.join("*"));
        command
    }

    /// Starts the broker and returns whether it has opened its port in time.
    fn try_run(&mut self) -> bool {
        let java = self.java(&["-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(if self.keeper_removes { self.folder.path() } else { Path::new("") })
            .arg("java")
            .args(java.get_args())
            .arg("kafka.Kafka")
            .arg(self.settings_file())
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh is there");
        let input = keeper.stdin.take();
        let mut output = BufReader::new(keeper.stdout.take().expect("stdout is piped"));
        self.running = Some(Running { keeper, input });
        let mut process = String::new();
        output.read_line(&mut process).expect("the keeper tells the broker's process");
        // Further output must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let begun = Instant::now();
        while begun.elapsed() < START_TIME_MAX {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            let there = Command::new("kill")
                .args(["-0", process.trim()])
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success());
            if !there {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.running = None;
        false
    }
}
