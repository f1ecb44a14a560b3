//! The status page in a headless Chromium, driven over the `DevTools` protocol.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use neve_devnet::{DevnetThread, Helicon};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::archive::bucket::Bucket;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::served::devnet;
use crate::support::ws::Ws;

/// Variable with a directory for pictures of the pages, as docs/operating has them.
const PICTURES: &str = "NEVE_TEST_PICTURES";
/// Width of a narrow phone, and of a window, in CSS pixels.
const PHONE: u32 = 360;
const WINDOW: u32 = 1100;

/// A page of a browser of its own.
struct Page {
    browser: Child,
    _profile: TempDir,
    devtools: Ws,
    session: Option<String>,
    calls: u64,
}

impl Page {
    /// Opens the page of a listener and waits until it shows that neve is ready.
    fn open(address: SocketAddr, width: u32, scheme: &str) -> Self {
        let profile = fresh_dir();
        let mut browser = Command::new("chromium");
        browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]);
        browser.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        browser.stdout(Stdio::null()).stderr(Stdio::null());
        let browser = browser.spawn().expect("chromium runs");
        let (port, path) = devtools(profile.path());
        let (devtools, _) = Ws::open_at(SocketAddr::from(([127, 0, 0, 1], port)), &path);
        let mut page = Self { browser, _profile: profile, devtools, session: None, calls: 0 };
        let target = page.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attached = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = page.call("Target.attachToTarget", &attached);
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        let size = json!({
            "width": width, "height": 740, "deviceScaleFactor": 1, "mobile": width == PHONE,
        });
        page.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        page.call("Emulation.setEmulatedMedia", &scheme);
        page.call("Emulation.setScrollbarsHidden", &json!({ "hidden": true }));
        page.call("Page.navigate", &json!({ "url": format!("http://{address}/") }));
        page.wait_for("document.getElementById('state')?.textContent === 'ready'");
        page
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        self.devtools.send(&call.to_string());
        loop {
            let mut answer: Value = serde_json::from_str(&self.devtools.text()).expect("JSON");
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }

    /// The value of an expression in the page.
    fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        self.call("Runtime.evaluate", &params)["result"]["value"].take()
    }

    fn wait_for(&mut self, condition: &str) {
        let look = || match self.eval(condition) {
            Value::Bool(true) => Ok(()),
            other => Err(Miss::NotYet(other.to_string())),
        };
        wait_until(condition, LIMIT, look).unwrap_or_else(|why| panic!("{why}"));
    }

    fn text(&mut self) -> String {
        self.eval("document.documentElement.outerHTML").as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key. `text` is what it types.
    fn press(&mut self, key: &str, code: u32, text: &str, shift: bool) {
        let key = json!({
            "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code,
            "text": text, "modifiers": if shift { 8 } else { 0 },
        });
        self.call("Input.dispatchKeyEvent", &key);
        let mut up = key;
        up["type"] = json!("keyUp");
        up.as_object_mut().expect("an object").remove("text");
        self.call("Input.dispatchKeyEvent", &up);
    }

    fn tab(&mut self) {
        self.press("Tab", 9, "", false);
    }

    fn enter(&mut self) {
        self.press("Enter", 13, "\r", false);
    }

    /// Keeps a picture of the whole page, if pictures are wanted.
    fn picture(&mut self, name: &str) {
        let Some(dir) = std::env::var_os(PICTURES) else { return };
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.call("Page.captureScreenshot", &params);
        let bytes = STANDARD.decode(picture["data"].as_str().expect("a picture"));
        let file = Path::new(&dir).join(format!("{name}.png"));
        fs::write(file, bytes.expect("base64")).expect("a directory for pictures");
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}

/// Port and path of the `DevTools` of the browser with this profile.
fn devtools(profile: &Path) -> (u16, String) {
    let look = || {
        let text = fs::read_to_string(profile.join("DevToolsActivePort")).unwrap_or_default();
        let (port, path) = text.split_once('\n').ok_or(Miss::NotYet("no port".to_owned()))?;
        let port = port.parse().map_err(|_| Miss::NotYet(text.clone()))?;
        Ok((port, path.trim().to_owned()))
    };
    wait_until("the port of the browser", LIMIT, look).unwrap_or_else(|why| panic!("{why}"))
}

/// A neve over a development chain, with a head at this height.
fn neve(height: u64, more: &[&str]) -> (DevnetThread, TempDir, Neve, String) {
    let (node, dir) = (devnet(height), fresh_dir());
    let url = node.base_url();
    let neve = Neve::start(dir.path(), &[&["--upstream", &url, "--start", "0"], more].concat());
    neve.wait_for_head(height);
    neve.wait("readiness", |health| (health["status"] == "ok").then_some(()));
    let upstream = url.strip_prefix("http://").expect("plain").to_owned();
    (node, dir, neve, upstream)
}

const BALANCE: &str = r#"["0x0000000000000000000000000000000000000001","latest"]"#;

#[test]
#[ignore = "needs chromium: ./check browser"]
fn pages_show_what_their_listener_has_in_a_browser() {
    let segments = ["--segment-blocks", "16", "--unpacked-bytes", "256KiB"];
    let (_node, _dir, neve, upstream) = neve(200, &segments);
    let mut client = neve.client();
    (0..3).for_each(|_| drop(client.call("eth_chainId", "[]")));
    assert_eq!(client.call("eth_getBalance", BALANCE).status, 421);
    let mut main = Page::open(neve.address, WINDOW, "light");
    let text = main.text();
    assert!(text.contains("<dt>Head</dt><dd>200</dd>"), "{text}");
    assert!(!text.contains(&upstream) && !text.contains("Disk used</dt>"), "{text}");
    assert!(text.contains("201 served") && !text.contains(" active<"), "{text}");
    let of_calls = [
        "<dt>Hits a second</dt>",
        "<td>eth_chainId</td>",
        "<td>eth_getBalance</td><td>miss</td>",
        "<td>not_served</td>",
    ];
    assert!(of_calls.iter().all(|shown| !text.contains(shown)), "{text}");
    for part in ["calls", "times", "misses", "sources", "storage", "upstreams"] {
        assert!(text.contains(&format!(r#"<section id="{part}-part" hidden"#)), "{part}: {text}");
    }
    assert_eq!(main.eval("document.getElementById('try-part').hidden"), false);
    let display = "getComputedStyle(document.getElementById('metrics-link')).display";
    assert_eq!(main.eval(display), "none");
    let mut full = Page::open(neve.admin, WINDOW, "light");
    assert_ne!(full.eval(display), "none");
    full.wait_for("document.getElementById('times').rows.length > 1");
    let text = full.text();
    assert!(text.contains(&upstream), "{text}");
    for shown in [
        "<dt>Disk used</dt>",
        "<dt>Disk bound</dt><dd>20.0 GiB</dd>",
        "<dt>Time to full</dt>",
        "<dt>Memory of clients</dt><dd>0 B of 256.0 MiB</dd>",
        "<dt>Relayed requests a second</dt>",
        " active</span>",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert!(of_calls.iter().all(|shown| text.contains(shown)), "{text}");
    let hits = r#"<td>eth_chainId</td><td>hit</td><td class="number">3</td><td class="number">"#;
    assert!(text.contains(hits), "{text}");
    assert_eq!(full.eval("document.getElementById('try-part').hidden"), true);
    let align = "getComputedStyle(document.querySelector('#upstreams th:nth-child(3)')).textAlign";
    assert_eq!(full.eval(align), "right");
    let response = full.eval("document.querySelector('#upstreams td:nth-child(5)').textContent");
    assert!(response.as_str().is_some_and(|text| text.ends_with('s') && text != "0.0 s"));
    full.picture("page");
}

#[test]
#[ignore = "needs chromium: ./check browser"]
fn archived_heights_are_drawn_beside_those_of_the_store_in_a_browser() {
    let (bucket, dir) = (Bucket::new(Helicon::Never), fresh_dir());
    let replica = bucket.replica(dir.path(), &[]);
    let label = "document.getElementById('archived').getAttribute('aria-label')";
    let parts = "[...document.querySelectorAll('#archived rect')]\
                 .map((part) => [part.className.baseVal, Math.round(part.width.baseVal.value)])";
    let display = "getComputedStyle(document.getElementById('archived-part')).display";
    let mut full = Page::open(replica.admin, WINDOW, "light");
    let words = "heights 0 to 95 of archive and store: 64 only in the archive, answered; \
                 32 in the archive and stored";
    assert_eq!((full.eval(label), full.eval(display)), (json!(words), json!("block")));
    assert_eq!(full.eval(parts), json!([["answered", 667], ["both", 333]]));
    assert!(full.text().contains("64 only in the archive, answered</span>"));
    // An archive that ends below the store, and one that goes on above it.
    for (archive, words, kinds) in [
        (
            "{ min_height: 0, max_height: 99, answers: null }",
            "heights 0 to 299 of archive and store: 100 only in the archive, not answered; \
             100 in neither; 100 only stored",
            vec!["archived", "absent", "served"],
        ),
        (
            "{ min_height: 250, max_height: 399, answers: { min_height: 250, max_height: 399 } }",
            "heights 200 to 399 of archive and store: 100 only in the archive, answered; \
             50 in the archive and stored; 50 only stored",
            vec!["served", "both", "answered"],
        ),
    ] {
        let blocks = "{ min_height: 200, max_contiguous_height: 299 }";
        let drawn = format!(
            "archived({{ blocks: {blocks}, archive: {archive} }}), [{label}, {parts}.map((part) => part[0])]"
        );
        assert_eq!(full.eval(&drawn), json!([words, kinds]));
    }
    let mut main = Page::open(replica.address, WINDOW, "light");
    assert_eq!((main.eval(display), main.eval(parts)), (json!("none"), json!([])));
}

#[test]
#[ignore = "needs chromium: ./check browser"]
fn quarantined_files_a_gap_and_unsettled_heights_are_drawn_in_a_browser() {
    let (_node, _dir, neve, _) = neve(60, &["--segment-blocks", "16"]);
    let mut full = Page::open(neve.admin, WINDOW, "light");
    let settled = neve.health()["blocks"]["settled_height"].as_u64();
    let settled = settled.map_or("none".to_owned(), |height| height.to_string());
    full.wait_for(&format!(
        "document.getElementById('now').innerHTML.includes('<dt>Settled height</dt><dd>{settled}</dd>')"
    ));
    let drawn = "[document.getElementById('range').getAttribute('aria-label'), \
                 document.getElementById('legend').textContent, \
                 [...document.querySelectorAll('#range rect')]\
                 .map((part) => [part.className.baseVal, Math.round(part.width.baseVal.value)])]";
    let blocks = "{ min_height: 160, max_contiguous_height: 279, unsettled: 12 }";
    let tiers = "[{ tier: 'sealed', heights: 104 }, { tier: 'active', heights: 16 }]";
    for (files, words) in [(4, "4 files quarantined"), (1, "1 file quarantined")] {
        let storage =
            format!("{{ gap: [128, 159], quarantined: {{ files: {files} }}, tiers: {tiers} }}");
        let found =
            full.eval(&format!("picture({{ blocks: {blocks}, storage: {storage} }}), {drawn}"));
        let label = format!(
            "heights 160 to 279: {words}, 32 missing, 104 sealed, 16 active, 12 not settled yet"
        );
        let legend = format!("{words}32 missing104 sealed16 active12 not settled yet");
        // The part of quarantined files has one width, however many they are.
        let parts = json!([
            ["quarantined", 29],
            ["gap", 204],
            ["sealed", 664],
            ["active", 102],
            ["unsettled", 77],
        ]);
        assert_eq!(found, json!([label, legend, parts]));
    }
    // The short /health knows no tiers, and neither files nor a gap.
    let found = full.eval(&format!("picture({{ blocks: {blocks} }}), {drawn}"));
    let label = "heights 160 to 279: 120 served, 12 not settled yet";
    let parts = json!([["served", 1000], ["unsettled", 100]]);
    assert_eq!(found, json!([label, "120 served12 not settled yet", parts]));
}

#[test]
#[ignore = "needs chromium: ./check browser"]
fn call_is_sent_by_the_keyboard_and_by_its_button_in_a_browser() {
    let (_node, _dir, neve, _) = neve(20, &[]);
    let mut page = Page::open(neve.address, WINDOW, "light");
    let focused = |page: &mut Page, id: &str| page.eval("document.activeElement?.id") == id;
    for _ in 0..10 {
        page.tab();
        if focused(&mut page, "request") {
            break;
        }
    }
    assert!(focused(&mut page, "request"), "no Tab leads to the box");
    page.press("Enter", 13, "\r", true);
    let lines = page.eval("document.getElementById('request').value.includes('\\n')");
    assert_eq!(lines, true, "Shift and Enter begin a line");
    assert_eq!(page.eval("document.getElementById('response').hidden"), true);
    page.enter();
    let answer = "document.getElementById('response').textContent";
    page.wait_for(&format!("{answer}.startsWith('HTTP 200')"));
    let shown = page.eval(answer);
    assert!(shown.as_str().is_some_and(|text| text.contains(r#""number":"0x14""#)), "{shown}");
    page.picture("page-call");
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBalance","params":[]}"#;
    page.eval(&format!("document.getElementById('request').value = '{call}'"));
    page.tab();
    assert_eq!(page.eval("document.activeElement.textContent"), "Send");
    page.enter();
    page.wait_for(&format!("{answer}.includes('\"id\":7')"));
}

#[test]
#[ignore = "needs chromium: ./check browser"]
fn page_is_dark_or_light_and_fits_a_phone_in_a_browser() {
    let (_node, _dir, neve, _) = neve(60, &["--segment-blocks", "16"]);
    let back = "getComputedStyle(document.body).backgroundColor";
    for (scheme, color) in [("dark", "rgb(18, 22, 28)"), ("light", "rgb(247, 248, 250)")] {
        for (listener, address) in [("main", neve.address), ("admin", neve.admin)] {
            let mut page = Page::open(address, PHONE, scheme);
            assert_eq!(page.eval(back), color);
            let widths = "[innerWidth, document.documentElement.scrollWidth]";
            assert_eq!(page.eval(widths), json!([PHONE, PHONE]), "{listener}, {scheme}");
            if (listener, scheme) == ("main", "light") {
                page.picture("page-phone");
            }
        }
    }
    let mut page = Page::open(neve.admin, WINDOW, "dark");
    page.wait_for("document.getElementById('storage').children.length > 5");
    page.picture("page-dark");
}
