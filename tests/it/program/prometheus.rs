//! The shipped rules and the metrics, in a real Prometheus.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{fs, io};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};

/// A folder of the checkout with the shipped files.
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/prometheus");

/// A Prometheus, in the foreground. Dropping it ends it.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _dir: TempDir,
}

impl Prometheus {
    /// Starts one by the shipped configuration, but for the target, and faster.
    fn start(target: SocketAddr) -> Self {
        let dir = fresh_dir();
        let shipped = fs::read_to_string(Path::new(SHIPPED).join("prometheus.yml")).unwrap();
        let rules = format!("{SHIPPED}/neve.rules.yml");
        let text = shipped
            .replace("127.0.0.1:8549", &target.to_string())
            .replace("neve.rules.yml", &rules)
            .replace("interval: 5s", "interval: 1s");
        let path = dir.path().join("prometheus.yml");
        fs::write(&path, text).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|why| panic!("prometheus: {why}"));
        let prometheus = Self { child, address, _dir: dir };
        let up = || TcpStream::connect(address).map_err(|why| Miss::NotYet(why.to_string()));
        wait_until("prometheus", LIMIT, up).unwrap_or_else(|why| panic!("{why}"));
        prometheus
    }

    /// Waits until the page holds what is wanted.
    fn wait<T>(&self, path: &str, mut look: impl FnMut(&Value) -> Option<T>) -> T {
        let ask = || {
            // It says 503 in words until it has read its own data.
            let page = Client::new(self.address).get(path);
            let read = (page.status == 200).then(|| look(&page.json()["data"])).flatten();
            read.ok_or_else(|| Miss::NotYet(page.text()))
        };
        wait_until(path, LIMIT, ask).unwrap_or_else(|why| panic!("{why}"))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn promtool(arguments: &[&str], input: Option<&str>) {
    let dir = fresh_dir();
    let stdin = dir.path().join("input");
    fs::write(&stdin, input.unwrap_or_default()).unwrap();
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(SHIPPED)
        .stdin(fs::File::open(stdin).unwrap())
        .output()
        .unwrap_or_else(|why: io::Error| panic!("promtool: {why}"));
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}: {out}{err}");
}

#[test]
#[ignore = "needs prometheus: ./check"]
fn prometheus_loads_the_rules_reads_the_metrics_and_sees_neve_go() {
    promtool(&["check", "rules", "neve.rules.yml"], None);
    promtool(&["test", "rules", "neve.rules.test.yml"], None);
    promtool(&["check", "config", "prometheus.yml"], None);
    let dir = fresh_dir();
    let dev = ["serve", "--dev", "--listen", "127.0.0.1:0", "--dev-rate", "20"];
    let neve = Neve::spawn(dir.path(), &dev);
    neve.wait_for_head(100);
    let mut client = neve.client();
    client.call("eth_chainId", "[]");
    client.call("eth_getBlockByNumber", "[\"0xffffff\",false]");
    neve.wait_for_count(
        "neve_rpc_misses_total{method=\"eth_getBlockByNumber\",reason=\"above_head\"}",
        1,
    );
    promtool(&["check", "metrics"], Some(&neve.admin().get("/metrics").text()));

    let prometheus = Prometheus::start(neve.admin);
    let shipped = fs::read_to_string(Path::new(SHIPPED).join("neve.rules.yml")).unwrap();
    let count = shipped.matches("alert: ").count();
    prometheus.wait("/api/v1/rules", |data| {
        let rules = data["groups"][0]["rules"].as_array().filter(|rules| rules.len() == count)?;
        rules.iter().all(|rule| rule["health"] == "ok").then_some(())
    });
    prometheus.wait("/api/v1/query?query=neve_head_height", |data| {
        let head = data["result"][0]["value"][1].as_str()?.parse::<u64>().ok()?;
        (head >= 100).then_some(())
    });
    neve.kill();
    prometheus.wait("/api/v1/alerts", |data| {
        let alerts = data["alerts"].as_array()?;
        alerts.iter().any(|alert| alert["labels"]["alertname"] == "NeveDown").then_some(())
    });
}
