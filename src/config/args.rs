//! The command line: commands, flags and help, made from the tables of settings.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum, value_parser};
use clap_complete::Shell;
use neve_store::Hash;

use self::block_name::{block, hash, height};
use super::archive_args::ArchiveArgs;
use super::file::DEFAULT_PATH;
use super::setting::{Setting, Tables};

mod block_name;
#[cfg(test)]
mod tests;

/// Examples at the end of the help of `neve serve`.
const EXAMPLES: &str = "\
Examples:
  neve serve --dev
  neve serve --data-dir /var/lib/neve --upstream http://127.0.0.1:9650
  neve serve --data-dir /var/lib/neve --network mainnet --retain-bytes 100GiB";

/// Words on values at the end of the long help.
const UNITS: &str = "\
Values:
  <BYTES>     a whole number and a unit: 4096, 25MB, 128MiB, 20GiB
  <COUNT>     a whole number
  <RATE>      a number a second, also a fraction
  <DURATION>  a number and a unit: 500ms, 30s, 12h, 7d
  <HEIGHT>    number of a block: 69000000 or 0x41cdb40
  <ADDRESS>   HOST:PORT, for example 127.0.0.1:8545 or localhost:8545
  <URL>       http or https, a host, a port and a path
  A name with dots (<HOST>...) takes a list: a comma between two values, or the flag again.

Each flag but --dev and --dev-rate is also a variable (--start is NEVE_START) and a key of the file
(start). A flag overrides a variable, a variable the file, the file the default.";

/// Exit codes at the end of the help.
const CODES: &str =
    "Exit codes: 0 done, 1 failed or findings, 2 could not read the store, 64 wrong usage.";

/// Returns the command line of neve. A command adds its settings when it is parsed or built: six commands have them, and one
/// of those runs.
pub fn command<T: Tables>() -> Command {
    Command::new("neve")
        .version(env!("NEVE_VERSION"))
        .about("A read-only cache for avalanchego's C-chain JSON-RPC.")
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(CODES)
        .subcommand(serve::<T>())
        .subcommand(VerifyArgs::augment_args(verify()))
        .subcommand(repair::<T>())
        .subcommand(InspectArgs::augment_args(inspect()))
        .subcommand(GetArgs::augment_args(get()))
        .subcommand(ExportArgs::augment_args(export()))
        .subcommand(import::<T>())
        .subcommands(archive())
        .subcommand(doctor::<T>())
        .subcommand(status::<T>())
        .subcommand(config::<T>())
        .subcommand(keys())
        .subcommand(Command::new("man").about("Print the manual page, in the form of man(7)."))
        .subcommand(completions())
}

fn completions() -> Command {
    let shell = Arg::new("shell").value_name("SHELL").required(true);
    Command::new("completions")
        .about("Print completions of the command line for a shell.")
        .arg(shell.value_parser(value_parser!(Shell)).help("The shell that completes."))
        .after_help("Example:\n  neve completions bash > /etc/bash_completion.d/neve")
}

fn serve<T: Tables>() -> Command {
    let about = "Follow a node, keep a bounded tail of its blocks, and answer reads from it.";
    Command::new("serve")
        .about(about)
        .defer(settings::<T>)
        .after_help(format!("{EXAMPLES}\n\n`neve serve --help` has all settings."))
        .after_long_help(format!("{UNITS}\n\n{EXAMPLES}"))
}

fn repair<T: Tables>() -> Command {
    let about = "Read a whole store that no neve runs on, and fetch damaged blocks again.";
    let long = "It takes the settings of `neve serve`, from the file too.";
    Command::new("repair")
        .about(about)
        .defer(settings::<T>)
        .long_about(format!("{about} {long}"))
        .after_help("`neve repair --help` has all settings.")
        .after_long_help(UNITS)
}

fn doctor<T: Tables>() -> Command {
    let about = "Check upstreams, disk, limits, file system and ports before neve serves.";
    let long = "It takes the settings of `neve serve`, from the file too. Run it as the user and \
                with the limits of the service.";
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue);
    let plan = Arg::new("plan").long("plan").action(ArgAction::SetTrue);
    let front = Arg::new("front").long("front").value_name("URL");
    Command::new("doctor")
        .about(about)
        .defer(settings::<T>)
        .arg(front.conflicts_with("plan").help("Send calls to a front at this address too, and check that misses reach a node."))
        .arg(json.help("Print JSON lines."))
        .arg(plan.help("Estimate disk, history, memory and CPU time of the settings instead."))
        .long_about(format!("{about} {long}"))
        .after_help("Exit codes: 0 all is well, 1 a warning, 2 a problem.\n\n`neve doctor --help` has all settings.")
        .after_long_help(format!("Exit codes: 0 all is well, 1 a warning, 2 a problem.\n\n{UNITS}"))
}

fn status<T: Tables>() -> Command {
    let about = "Print the state of a running neve: the /health of its admin listener.";
    let long = "It takes the settings of `neve serve`, from the file too, to find the listener.";
    let watch = Arg::new("watch").long("watch").action(ArgAction::SetTrue);
    let codes = "Exit codes: 0 ready, 1 not ready, 2 cannot reach neve, 64 wrong usage.";
    let examples = "Examples:\n  neve status --watch\n  neve status --admin-listen 10.0.0.5:8549";
    Command::new("status")
        .about(about)
        .defer(settings::<T>)
        .arg(watch.help("Print it again each second, also after neve stops and starts."))
        .long_about(format!("{about} {long}"))
        .after_help(format!("{codes}\n\n{examples}\n\n`neve status --help` has all settings."))
        .after_long_help(format!("{codes}\n\n{examples}\n\n{UNITS}"))
}

fn verify() -> Command {
    Command::new("verify").after_help(
        "Examples:\n  neve verify --data-dir /var/lib/neve\n  neve verify --segment \
         00000000000069000000.seg --json",
    )
}

fn inspect() -> Command {
    Command::new("inspect").after_help("Example:\n  neve inspect --data-dir /var/lib/neve")
}

fn get() -> Command {
    Command::new("get").after_help("Example:\n  neve get 69000000")
}

fn export() -> Command {
    Command::new("export").after_help(
        "After an error or Ctrl-C, go on with the height that it names.\n\nExample:\n  neve export \
         --first 69000000 --last 69000999 >> blocks.ndjson\n  neve export --first 69000000 --form rlp >> \
         blocks.rlp",
    )
}

fn import<T: Tables>() -> Command {
    let about = "Read lines of `neve export` into a store that no neve runs on.";
    let long = "Each height is proven as if an upstream had sent it. The first wrong line ends the \
                import; heights before it stay. A second run skips the heights that the store has. \
                A line has at most 128 MiB. It takes the settings of `neve serve`, from the file \
                too, and asks no upstream.";
    let examples = "Examples:\n  neve import --data-dir /var/lib/neve --network mainnet \
                    blocks.ndjson\n  zcat blocks.ndjson.gz | neve import --data-dir /var/lib/neve";
    let codes = "Exit codes: 0 done, 1 a line was refused or the import was interrupted, 2 could \
                 not open the store or the file, 64 wrong usage.";
    let file = Arg::new("file").value_name("FILE|-").value_parser(value_parser!(PathBuf));
    let id = Arg::new("chain-id").long("chain-id").value_name("COUNT");
    let genesis = Arg::new("genesis").long("genesis").value_name("HASH");
    Command::new("import")
        .about(about)
        .defer(settings::<T>)
        .arg(file.help("The lines. `-`, or none, is standard input."))
        .arg(id.value_parser(value_parser!(u64)).help(
            "Chain of an empty store, if --network does not name it. Block 0 or --genesis \
             completes it.",
        ))
        .arg(genesis.value_parser(hash).help("Hash of block 0 of an empty store."))
        .long_about(format!("{about} {long}"))
        .after_help(format!("{codes}\n\n{examples}\n\n`neve import --help` has all settings."))
        .after_long_help(format!("{codes}\n\n{examples}\n\n{UNITS}"))
}

/// The command of an archive, if this build has it.
fn archive() -> Option<Command> {
    let examples = "Examples:\n  neve archive push --data-dir /var/lib/neve s3://bucket/neve\n  neve \
                    archive verify file:///mnt/archive";
    let command = Command::new("archive").after_help(examples);
    cfg!(feature = "archive").then(|| ArchiveArgs::augment_args(command))
}

fn config<T: Tables>() -> Command {
    let file = Arg::new("file").value_name("FILE").required(true);
    let check = Command::new("check")
        .about("Check a file of settings: its keys and values. Exit code 1 if one is wrong.")
        .arg(file.value_parser(value_parser!(PathBuf)).help("The file, in TOML."));
    let about = "Print the settings that `neve serve` would have, each with its origin.";
    let print = Command::new("print").about(about).defer(settings::<T>);
    Command::new("config")
        .about("Print or check the settings of `neve serve`.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(print.after_help("`neve config print --help` has all settings."))
        .subcommand(check)
}

fn keys() -> Command {
    let name = Arg::new("name").long("name").value_name("NAME").required(true);
    let hash = Command::new("hash")
        .about("Read a key from standard input, and print its entry for the file of --keys.")
        .arg(name.help("Name of the key in the file and in metrics: letters, digits and -_."))
        .after_help(
            "The key has 16 to 256 letters, digits and -_.~, and should be random:\n  openssl rand \
             -hex 24 | tee shop.key | neve keys hash --name shop >> keys.toml",
        );
    Command::new("keys")
        .about("Make entries for the file of API keys (`neve serve --keys`).")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(hash)
}

/// Heading of the settings of the short help. A heading for each group would fill the screen.
const COMMON: &str = "Common";

/// Adds all settings to a command.
fn settings<T: Tables>(command: Command) -> Command {
    let config = Arg::new("config").long("config").value_name("FILE|none").env("NEVE_CONFIG");
    let help = format!(
        "File of settings, in TOML; `none` for no file. [default: {DEFAULT_PATH} if it exists, \
         none with --dev]"
    );
    let command = command.arg(config.help(help).help_heading(COMMON).hide_env(true));
    T::GROUPS.iter().fold(command, |command, group| {
        command.args(group.settings.iter().map(|setting| arg(setting, group.title)))
    })
}

/// Flag of a setting, with its variable and its help.
fn described(setting: &Setting, heading: &'static str) -> Arg {
    let default = setting.shown_default().map(|text| format!(" [default: {text}]"));
    let default = default.unwrap_or_default();
    let arg = Arg::new(setting.name)
        .long(setting.name)
        .help(format!("{}{default}", first_sentence(setting.help)))
        .long_help(format!("{}{default}", setting.help))
        .help_heading(if setting.brief { COMMON } else { heading })
        // clap would show the value of the variable, and that may be a key.
        .hide_env(true)
        .hide_short_help(!setting.brief);
    match setting.variable() {
        Some(variable) => arg.env(variable),
        None => arg,
    }
}

fn arg(setting: &Setting, heading: &'static str) -> Arg {
    let (kind, arg) = (&setting.kind, described(setting, heading));
    if kind.switch {
        // As text: clap would blame a wrong variable on the flag, and the table of settings checks it anyway.
        return arg.action(ArgAction::SetTrue).value_parser(value_parser!(String));
    }
    let arg = arg.value_name(kind.shown).allow_hyphen_values(takes_hyphen(setting));
    if kind.many {
        arg.action(ArgAction::Append).value_delimiter(',')
    } else {
        arg.action(ArgAction::Set)
    }
}

/// Returns what `-h` has space for: a screen shows ten settings.
fn first_sentence(help: &str) -> &str {
    help.find(". ").map_or(help, |end| &help[..=end])
}

/// A height may be a distance, -1000.
fn takes_hyphen(setting: &Setting) -> bool {
    setting.kind.shown.contains("-COUNT")
}

/// Arguments of `neve verify`.
#[derive(Debug, Args)]
#[command(
    about = "Read a whole store and check everything in it. A server may be running on it.",
    group = clap::ArgGroup::new("what").required(true).multiple(true)
)]
pub struct VerifyArgs {
    /// Directory of the store.
    #[arg(long, env = "NEVE_DATA_DIR", hide_env = true, value_name = "DIR", group = "what")]
    pub data_dir: Option<PathBuf>,

    /// Segment file, in any directory. Overrides `--data-dir`.
    #[arg(long, value_name = "FILE", group = "what")]
    pub segment: Option<PathBuf>,

    /// Print JSON lines.
    #[arg(long)]
    pub json: bool,

    /// Print a digest of all served heights. Stores with the same heights have the same digest,
    /// however they got them.
    #[arg(long)]
    pub digest: bool,

    /// Keys that `neve serve` admits: blocks with other unknown keys are findings.
    #[arg(
        long,
        env = "NEVE_ADMIT_KEYS",
        hide_env = true,
        value_name = "OBJECT.KEY",
        value_delimiter = ','
    )]
    pub admit_keys: Vec<String>,

    /// Recover each sender from its signature too. Recovery takes four fifths of the CPU time.
    #[arg(long)]
    pub recover_senders: bool,
}

impl VerifyArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// A mistake in the usage.
    pub fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches(matches)
    }
}

/// Arguments of `neve inspect`.
#[derive(Debug, Args)]
#[command(
    about = "Show the tiers of a store: files, heights and bytes. A server may be running on it."
)]
pub struct InspectArgs {
    /// Directory of the store.
    #[arg(long, env = "NEVE_DATA_DIR", hide_env = true, value_name = "DIR")]
    pub data_dir: PathBuf,

    /// Show each file too.
    #[arg(long)]
    pub files: bool,

    /// Print one JSON object, with each file.
    #[arg(long)]
    pub json: bool,
}

impl InspectArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// A mistake in the usage.
    pub fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches(matches)
    }
}

/// Address that `neve get` and `neve export` ask, unless another one is named.
const FROM: &str = "http://127.0.0.1:8545";

/// Arguments of `neve get`.
#[derive(Debug, Args)]
#[command(
    about = "Print a block with its receipts as one line of JSON, as a running neve or a node has it."
)]
pub struct GetArgs {
    /// Height, in decimal or as 0x and hexadecimal digits, or hash of the block.
    #[arg(value_name = "HEIGHT|HASH", value_parser = block)]
    pub block: String,

    /// Address of the neve or node.
    #[arg(long, value_name = "URL", default_value = FROM)]
    pub from: String,
}

impl GetArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// A mistake in the usage.
    pub fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches(matches)
    }
}

/// Arguments of `neve export`.
#[derive(Debug, Args)]
#[command(
    about = "Print blocks with their receipts, a line of JSON for each, as a running neve or a node \
             has them."
)]
pub struct ExportArgs {
    /// First height.
    #[arg(long, value_name = "HEIGHT", value_parser = height)]
    pub first: u64,

    /// Last height; the newest one by default.
    #[arg(long, value_name = "HEIGHT", value_parser = height)]
    pub last: Option<u64>,

    /// Form of the output: lines of JSON, or blocks in RLP without receipts, one after the other, as `geth import`
    /// and coreth read them.
    #[arg(long, value_enum, default_value_t)]
    pub form: ExportForm,

    /// Address of the neve or node.
    #[arg(long, value_name = "URL", default_value = FROM)]
    pub from: String,
}

/// Form of exported blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ExportForm {
    /// A line of JSON for each block, with its receipts.
    #[default]
    Ndjson,
    /// The RLP of each block.
    Rlp,
}

impl ExportArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// A mistake in the usage.
    pub fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches(matches)
    }
}

/// Arguments of `neve import`, besides settings.
#[derive(Debug)]
pub struct ImportArgs {
    /// File of lines; standard input by default.
    pub file: Option<PathBuf>,
    /// Chain of an empty store.
    pub chain_id: Option<u64>,
    /// Hash of block 0 of an empty store.
    pub genesis: Option<Hash>,
}

impl ImportArgs {
    /// Reads the arguments.
    pub fn of(matches: &ArgMatches) -> Self {
        Self {
            file: matches.get_one("file").cloned(),
            chain_id: matches.get_one("chain-id").copied(),
            genesis: matches.get_one("genesis").copied(),
        }
    }
}
