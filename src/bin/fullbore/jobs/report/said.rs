//! What the command line says of the report.

use std::time::Duration;

use super::eta::Eta;
use crate::failure::Failure;
use crate::jobs::script::Script;
use crate::units;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Normal,
    Json,
    JsonPlus,
    Csv,
    Html,
}

/// Shorter makes reports that are mostly about reports.
const LEAST_INTERVAL: Duration = Duration::from_millis(500);

/// What the command line says of the report.
pub struct Said {
    pub(super) forms: Vec<Form>,
    pub(super) every: Option<Duration>,
    pub(super) eta: Eta,
}

impl Said {
    /// Reads it, before anything is made.
    pub fn of(script: &Script) -> Result<Self, Failure> {
        let forms = script.run_setting("output-format").map(|setting| setting.parse(forms)).transpose()?;
        let every =
            script.run_setting("status-interval").map(|setting| match setting.parse(units::time)? {
                time if time < LEAST_INTERVAL => Err(setting.refuse("give 500ms or more")),
                time => Ok(time),
            });
        let forms = forms.unwrap_or_else(|| vec![Form::Normal]);
        Ok(Self { forms, every: every.transpose()?, eta: Eta::new(script)? })
    }
}

fn forms(text: &str) -> Result<Vec<Form>, String> {
    let one = |word: &str| match word.trim() {
        "normal" => Ok(Form::Normal),
        "json" => Ok(Form::Json),
        "json+" => Ok(Form::JsonPlus),
        "csv" => Ok(Form::Csv),
        "html" => Ok(Form::Html),
        other => Err(format!("`{other}` is none of normal, json, json+, csv, html")),
    };
    text.split(',').map(one).collect()
}
