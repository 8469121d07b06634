//! Profiles of `~/.aws/config` and `~/.aws/credentials`.

use std::collections::HashMap;
use std::path::PathBuf;

use super::Variables;

/// The settings of sections, by their names: `profile NAME`, or `sso-session NAME`.
#[derive(Debug, Default)]
pub(super) struct Profiles(HashMap<String, HashMap<String, String>>);

impl Profiles {
    /// Reads both files; a file that cannot be read has no sections.
    pub(super) fn read(variables: Variables<'_>) -> Self {
        let mut profiles = Self::default();
        let file = |variable: &str, name: &str| {
            let path = variables(variable).map(PathBuf::from).or_else(|| Some(folder(variables)?.join(name)));
            path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
        };
        profiles.add(&file("AWS_CONFIG_FILE", "config"), false);
        // This one takes precedence.
        profiles.add(&file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), true);
        profiles
    }

    /// Adds the sections of a file, in which `bare` names are those of profiles.
    fn add(&mut self, text: &str, bare: bool) {
        let mut section = None;
        for line in text.lines() {
            // An indented line belongs to a setting with settings of its own.
            if line.starts_with([' ', '\t', '#', ';']) {
                continue;
            }
            let line = line.trim();
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
                section = Some(if bare || name == "default" { format!("profile {name}") } else { name });
            } else if let (Some(section), Some((key, value))) = (&section, line.split_once('=')) {
                let value = value.split(" #").next().unwrap_or(value).trim().to_string();
                let settings = self.0.entry(section.clone()).or_default();
                settings.insert(key.trim().to_ascii_lowercase(), value);
            }
        }
    }

    /// Returns the settings of a profile.
    pub(super) fn profile(&self, name: &str) -> Option<Settings<'_>> {
        self.0.get(&format!("profile {name}")).map(Settings)
    }

    /// Returns the settings of an SSO session.
    pub(super) fn sso_session(&self, name: &str) -> Option<Settings<'_>> {
        self.0.get(&format!("sso-session {name}")).map(Settings)
    }
}

/// The settings of one section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings<'a>(&'a HashMap<String, String>);

impl Settings<'_> {
    /// Returns a setting that is not empty.
    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.0.get(key).filter(|value| !value.is_empty()).cloned()
    }
}

/// Returns the folder of AWS's files.
pub(super) fn folder(variables: Variables<'_>) -> Option<PathBuf> {
    Some(PathBuf::from(variables("HOME")?).join(".aws"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_both_files_are_merged() {
        let mut profiles = Profiles::default();
        let config = "# comment\n[default]\nregion = eu-west-1\n[profile  dev]\nregion=us-east-2 # here\ns3 =\n  endpoint_url = x\n\
                      aws_access_key_id = old\n[sso-session s]\nsso_region = eu-west-1\n";
        profiles.add(config, false);
        profiles.add("[dev]\naws_access_key_id = new=\n", true);
        let dev = profiles.profile("dev").unwrap();
        assert_eq!(dev.get("region").as_deref(), Some("us-east-2"));
        assert_eq!(dev.get("aws_access_key_id").as_deref(), Some("new="));
        assert_eq!((dev.get("s3"), dev.get("endpoint_url")), (None, None));
        assert_eq!(profiles.profile("default").unwrap().get("region").as_deref(), Some("eu-west-1"));
        assert!(profiles.sso_session("s").is_some() && profiles.profile("other").is_none());
    }
}
