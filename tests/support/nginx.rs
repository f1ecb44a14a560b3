//! nginx with the configuration that is shipped.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use super::neve::fresh_dir;
use super::node::wait::{Miss, wait_until};

/// Place of nginx if the search path of an ordinary user lacks it.
const ELSEWHERE: &str = "/usr/sbin/nginx";
const LIMIT: Duration = Duration::from_mins(2);

/// A running nginx. Dropping it ends it.
pub(crate) struct Nginx {
    child: Child,
    pub(crate) address: SocketAddr,
    dir: TempDir,
}

impl Nginx {
    /// Starts it in front of neve and a node, which is given by its base address.
    pub(crate) fn start(neve: SocketAddr, node: &str) -> Self {
        let node = node.trim_start_matches("http://");
        Self::with(
            "neve.conf",
            &[
                ("server 127.0.0.1:8545;", &format!("server {neve};")),
                ("server 127.0.0.1:9650;", &format!("server {node};")),
                ("listen 127.0.0.1:8080;", "listen ADDRESS;"),
            ],
        )
    }

    /// Starts it as a cache for documents of neve.
    pub(crate) fn of_documents(neve: SocketAddr) -> Self {
        Self::of_documents_of(&[neve])
    }

    /// Starts it as a cache for documents of several neves.
    pub(crate) fn of_documents_of(neves: &[SocketAddr]) -> Self {
        let servers = neves.iter().map(|neve| format!("server {neve};"));
        Self::with(
            "documents.conf",
            &[
                ("server 127.0.0.1:8545;", &servers.collect::<Vec<_>>().join(" ")),
                ("listen 127.0.0.1:8081;", "listen ADDRESS;"),
                ("/var/cache/neve-documents", "DIR/documents"),
            ],
        )
    }

    /// Starts it with a file that is shipped, after some texts were replaced.
    fn with(file: &str, replaced: &[(&str, &str)]) -> Self {
        let dir = fresh_dir();
        let address = free_address();
        write_configuration(dir.path(), file, replaced, address);
        let tested = command(dir.path()).arg("-t").output();
        let tested = tested.unwrap_or_else(|why| {
            panic!("nginx cannot be run ({why}): Debian has it as nginx-light")
        });
        assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
        let child = command(dir.path()).stdin(Stdio::null()).spawn().expect("nginx starts");
        let mut nginx = Self { child, address, dir };
        let up = wait_until("nginx", LIMIT, || nginx.is_up());
        up.unwrap_or_else(|why| panic!("{why}\n{}", nginx.log()));
        nginx
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn is_up(&mut self) -> Result<(), Miss> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(Miss::Never(format!("it ended with {status}")));
        }
        TcpStream::connect(self.address).map(|_| ()).map_err(|why| Miss::NotYet(why.to_string()))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("error.log")).unwrap_or_default()
    }
}

impl Drop for Nginx {
    /// Ends it as an operator would: killed hard, its workers would stay behind.
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("nginx's log:\n{}", self.log());
        }
    }
}

fn command(dir: &Path) -> Command {
    let found = Path::new(ELSEWHERE).is_file();
    let mut command = Command::new(if found { ELSEWHERE } else { "nginx" });
    command.arg("-c").arg(dir.join("nginx.conf")).arg("-e").arg(dir.join("error.log"));
    command
}

/// The shipped file with other addresses, and around it as little as nginx takes.
fn write_configuration(dir: &Path, file: &str, replaced: &[(&str, &str)], listen: SocketAddr) {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/fronts/nginx").join(file);
    let mut text = fs::read_to_string(shipped).expect("the configuration is in the repository");
    for (shipped, real) in replaced {
        assert_eq!(text.matches(shipped).count(), 1, "{shipped}");
        let real = real.replace("DIR", &dir.display().to_string());
        text = text.replace(shipped, &real.replace("ADDRESS", &listen.to_string()));
    }
    let path = |name: &str| -> PathBuf { dir.join(name) };
    fs::write(path(file), text).expect("a file can be written");
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {};", path(name).display()));
    // Started by root, its workers would be those of another user, who may not enter the directory.
    let user = if geteuid().is_root() { "user root;" } else { "" };
    let main = format!(
        "{user} daemon off; worker_processes 1; pid {};\nerror_log {};\nevents {{}}\n\
         http {{ access_log off; {} include {}; }}\n",
        path("nginx.pid").display(),
        path("error.log").display(),
        temporary.join(" "),
        path(file).display(),
    );
    fs::write(path("nginx.conf"), main).expect("a file can be written");
}

/// Free at this moment: nginx cannot be told to choose.
fn free_address() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    socket.local_addr().expect("it is bound")
}
