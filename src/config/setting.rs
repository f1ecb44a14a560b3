//! A setting: name, type, default, bounds, unit, help, and whether SIGHUP reloads it. The tables of
//! settings stand in `settings/`. Flags, variables, keys of the file, the reference and the man page
//! are made from them.

use std::fmt::Display;
use std::str::FromStr;

use clap::ValueEnum;

use super::units::{AgeLimit, BackfillTo, ByteCount, Count, DurationArg, OnOff, Rate, StartAt};

/// Settings with one heading in the help.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// Heading of the group in help and reference.
    pub title: &'static str,
    /// The settings, in the order of the help.
    pub settings: &'static [Setting],
}

/// A setting: name, values, default and help.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Flag without its dashes, and key of the file.
    pub name: &'static str,
    /// Values that it takes.
    pub kind: SettingKind,
    /// Value if none is given, as a person types it.
    pub default: Option<&'static str>,
    /// Description of the default, if it follows from other settings or from the machine.
    pub otherwise: Option<&'static str>,
    /// True if SIGHUP reloads it from the file.
    pub reloads: bool,
    /// True if only a flag sets it.
    pub flag_only: bool,
    /// True if the short help has it.
    pub brief: bool,
    /// Help text of one or two sentences.
    pub help: &'static str,
}

impl Setting {
    /// Creates a setting without a default.
    pub(crate) const fn new(name: &'static str, kind: SettingKind, help: &'static str) -> Self {
        let (default, otherwise) = (None, None);
        let (reloads, flag_only, brief) = (false, false, false);
        Self { name, kind, default, otherwise, reloads, flag_only, brief, help }
    }

    /// Sets the default.
    pub(crate) const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    /// Describes the default that is computed.
    pub(crate) const fn otherwise(mut self, text: &'static str) -> Self {
        self.otherwise = Some(text);
        self
    }

    /// Marks a setting that SIGHUP reloads.
    pub(crate) const fn reloads(mut self) -> Self {
        self.reloads = true;
        self
    }

    /// Marks a setting that has no variable and no key of the file.
    pub(crate) const fn flag_only(mut self) -> Self {
        self.flag_only = true;
        self
    }

    /// Marks a setting of the short help.
    pub(crate) const fn brief(mut self) -> Self {
        self.brief = true;
        self
    }

    /// Returns the variable of this setting.
    pub fn variable(&self) -> Option<String> {
        (!self.flag_only).then(|| variable(self.name))
    }

    /// Returns the default as the help shows it.
    pub fn shown_default(&self) -> Option<&'static str> {
        self.otherwise.or(self.default)
    }
}

/// Returns the variable of a setting of this name.
pub(super) fn variable(name: &str) -> String {
    format!("NEVE_{}", name.to_uppercase().replace('-', "_"))
}

/// Tables of settings.
pub trait Tables {
    /// The groups, in the order of the help.
    const GROUPS: &'static [Group];
}

/// Unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A length of time.
    Duration,
    /// A number of bytes, with a unit or without.
    Bytes,
    /// A whole number.
    Count,
    /// A number a second, also a fraction.
    Rate,
    /// A height, or a number of heights before the head.
    Height,
}

/// Bounds of a number. The lower bound is the least that works; the upper bound is far above any use,
/// and far below any overflow.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Unit of the number.
    pub unit: Unit,
    /// Lowest allowed value, as a person types it.
    pub min: &'static str,
    /// Highest allowed value.
    pub max: &'static str,
    /// True if `none` is allowed.
    pub none: bool,
    /// Allowed values, if there are others than the numbers between the bounds.
    pub text: Option<&'static str>,
}

/// Values that a setting takes.
#[derive(Debug, Clone, Copy)]
pub struct SettingKind {
    /// Name of a value in the help.
    pub shown: &'static str,
    /// Bounds, if it is a number.
    pub bounds: Option<Bounds>,
    /// Allowed words, if there are only some.
    pub words: Option<fn() -> Vec<String>>,
    /// True if it takes a list.
    pub many: bool,
    /// True if it takes no value.
    pub switch: bool,
    /// True if a value may contain a key: only scheme and host are shown.
    pub secret: bool,
    parse: fn(&str) -> Result<(), String>,
}

/// A flag without a value; `true` or `false` in the file.
pub(crate) const SWITCH: SettingKind = SettingKind { switch: true, ..text::<OnOff>("") };

/// Any text that `T` can be read from.
pub(crate) const fn text<T: FromStr<Err: Display>>(shown: &'static str) -> SettingKind {
    let parse = parses::<T>;
    let (many, switch, secret) = (false, false, false);
    SettingKind { shown, bounds: None, words: None, many, switch, secret, parse }
}

fn parses<T: FromStr<Err: Display>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(drop).map_err(|error| error.to_string())
}

/// A word of `T`.
pub(crate) const fn one_of<T: ValueEnum>(shown: &'static str) -> SettingKind {
    SettingKind { words: Some(words::<T>), parse: is_word::<T>, ..text::<String>(shown) }
}

fn words<T: ValueEnum>() -> Vec<String> {
    let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    values.map(|value| value.get_name().to_owned()).collect()
}

fn is_word<T: ValueEnum>(text: &str) -> Result<(), String> {
    T::from_str(text, false).map(drop).map_err(|_| format!("allowed: {}", words::<T>().join(", ")))
}

const fn number<T: FromStr<Err: Display>>(
    shown: &'static str,
    unit: Unit,
    min: &'static str,
    max: &'static str,
) -> SettingKind {
    SettingKind {
        bounds: Some(Bounds { unit, min, max, none: false, text: None }),
        ..text::<T>(shown)
    }
}

/// Makes the kind of a number of bytes.
pub(crate) const fn bytes(min: &'static str, max: &'static str) -> SettingKind {
    number::<ByteCount>("BYTES", Unit::Bytes, min, max)
}

/// A length of time.
pub(crate) const fn duration(min: &'static str, max: &'static str) -> SettingKind {
    number::<DurationArg>("DURATION", Unit::Duration, min, max)
}

/// A length of time, or `none`.
pub(crate) const fn age(min: &'static str, max: &'static str) -> SettingKind {
    number::<AgeLimit>("DURATION", Unit::Duration, min, max).or_none("DURATION|none")
}

/// A whole number.
pub(crate) const fn count(min: &'static str, max: &'static str) -> SettingKind {
    number::<Count>("COUNT", Unit::Count, min, max)
}

/// A number a second.
pub(crate) const fn rate(min: &'static str, max: &'static str) -> SettingKind {
    number::<Rate>("RATE", Unit::Rate, min, max)
}

/// A height or a distance from the head, as `T` reads it.
pub(crate) const fn height<T: FromStr<Err: Display>>(
    shown: &'static str,
    max: &'static str,
) -> SettingKind {
    number::<T>(shown, Unit::Height, "0", max)
}

impl SettingKind {
    /// Also allows `none`, which stands for no bound.
    pub(crate) const fn or_none(mut self, shown: &'static str) -> Self {
        self.shown = shown;
        if let Some(bounds) = &mut self.bounds {
            bounds.none = true;
        }
        self
    }

    /// Says in words which values are allowed.
    pub(crate) const fn allowing(mut self, text: &'static str) -> Self {
        if let Some(bounds) = &mut self.bounds {
            bounds.text = Some(text);
        }
        self
    }

    /// Takes a list.
    pub(crate) const fn many(mut self) -> Self {
        self.many = true;
        self
    }

    /// Hides all of a value but scheme and host.
    pub(crate) const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Checks one value.
    ///
    /// # Errors
    /// Says what is wrong with the value, and what is allowed.
    pub fn check(&self, text: &str) -> Result<(), String> {
        (self.parse)(text)?;
        self.bounds.as_ref().map_or(Ok(()), |bounds| bounds.check(text))
    }

    /// Returns the allowed values for a table, or nothing if the value name says all.
    pub fn allowed(&self) -> String {
        match (&self.bounds, self.words) {
            (Some(bounds), _) => bounds.allowed(),
            (None, Some(words)) => words().join(", "),
            (None, None) => String::new(),
        }
    }
}

/// A number as typed.
enum TypedNumber {
    /// In the smallest part of its unit: nanoseconds, bytes, millionths.
    Some(i128),
    /// No bound, as far as it is up to the user.
    NoBound,
    /// A word that stands for no amount, such as `retained`.
    Word,
}

impl Bounds {
    fn check(&self, text: &str) -> Result<(), String> {
        let wrong = match self.unit.read(text) {
            Some(TypedNumber::NoBound) if !self.none => "no bound",
            Some(TypedNumber::Some(amount)) if self.below(amount) => "too small",
            Some(TypedNumber::Some(amount)) if self.above(amount) => "too large",
            // `parse` has refused what is no number.
            _ => return Ok(()),
        };
        Err(format!("{wrong}; allowed: {}", self.allowed()))
    }

    fn below(&self, amount: i128) -> bool {
        self.unit.amount(self.min).is_some_and(|min| amount < min)
    }

    fn above(&self, amount: i128) -> bool {
        self.unit.amount(self.max).is_some_and(|max| amount > max)
    }

    /// Returns the allowed values.
    pub fn allowed(&self) -> String {
        let none = if self.none { ", or none" } else { "" };
        let between = || format!("{} to {}{none}", self.min, self.max);
        self.text.map_or_else(between, str::to_owned)
    }
}

impl Unit {
    /// Reads a value; `None` if it is none of this unit.
    fn read(self, text: &str) -> Option<TypedNumber> {
        // Of a height, `none` says that there is no backfill.
        if self != Self::Height && text.eq_ignore_ascii_case("none") {
            return Some(TypedNumber::NoBound);
        }
        let amount = match self {
            Self::Duration => {
                i128::try_from(text.parse::<DurationArg>().ok()?.0.as_nanos()).ok()?
            }
            Self::Bytes => i128::from(text.parse::<ByteCount>().ok()?.0?),
            Self::Count => text.parse().ok()?,
            Self::Rate => millionths(text.parse().ok()?),
            Self::Height => match text.parse::<BackfillTo>() {
                Ok(BackfillTo::None | BackfillTo::Retained) => return Some(TypedNumber::Word),
                Ok(BackfillTo::To(at)) => distance(at),
                Err(_) => distance(text.parse().ok()?),
            },
        };
        Some(TypedNumber::Some(amount))
    }

    /// Returns a value in the smallest part of its unit.
    pub(super) fn amount(self, text: &str) -> Option<i128> {
        match self.read(text)? {
            TypedNumber::Some(amount) => Some(amount),
            TypedNumber::NoBound | TypedNumber::Word => None,
        }
    }
}

fn distance(at: StartAt) -> i128 {
    match at {
        StartAt::Height(height) | StartAt::BeforeHead(height) => i128::from(height),
    }
}

/// A number that is none is below every bound.
fn millionths(rate: f64) -> i128 {
    if rate.is_nan() { i128::MIN } else { (rate * 1e6).round() as i128 }
}

/// Splits a list as the command line does.
pub(super) fn split(setting: &Setting, text: &str) -> Vec<String> {
    if setting.kind.many {
        text.split(',').map(str::to_owned).collect()
    } else {
        vec![text.to_owned()]
    }
}
