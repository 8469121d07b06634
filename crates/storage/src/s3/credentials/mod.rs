//! Credentials of S3, from the places where AWS's own programs look.
//!
//! In this order: the environment's keys, the profile of `AWS_PROFILE`, the environment's web identity, the profile
//! `default`, the container's role, and the instance's role. `object_store` itself knows neither profiles nor a short
//! timeout of the instance's metadata, so those are here; the rest is its own.

mod profile;
mod source;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use object_store::aws::AwsCredential;
use object_store::{CredentialProvider, Error};
use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::sync::Mutex;

use self::profile::{Profiles, Settings, folder};
use self::source::{Role, Source};
use crate::errors::Secrets;

/// Returns the value of an environment variable that is not empty.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Timeout of a request for credentials.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the metadata service, which is on the same machine. Elsewhere, nothing answers.
const INSTANCE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time before the expiration at which credentials are fetched again.
const EARLY: Duration = Duration::from_secs(300);
/// Maximum number of profiles that refer to each other.
const MAX_CHAIN: usize = 8;

/// The credentials and settings of a bucket that `object_store` does not find itself.
#[derive(Default)]
pub(super) struct Found {
    /// `None` if `object_store` finds them.
    pub provider: Option<Arc<dyn CredentialProvider<Credential = AwsCredential>>>,
    pub region: Option<String>,
    pub endpoint: Option<String>,
}

/// Looks for credentials. Those that are fetched later are added to `secrets`.
///
/// # Errors
/// Returns the cause if a profile is missing or incomplete.
pub(super) fn find(variables: Variables<'_>, secrets: &Secrets) -> Result<Found, Error> {
    let invalid = |why: String| Error::Generic { store: "S3", source: why.into() };
    let is_set = |name: &str| variables(name).is_some();
    let explicit = variables("AWS_PROFILE").or_else(|| variables("AWS_DEFAULT_PROFILE"));
    let name = explicit.clone().unwrap_or_else(|| "default".to_string());
    let profiles = Profiles::read(variables);
    let profile = profiles.profile(&name);
    let setting = |key: &str| profile.and_then(|profile| profile.get(key));
    let mut found = Found { provider: None, region: setting("region"), endpoint: setting("endpoint_url") };
    let has_keys = is_set("AWS_ACCESS_KEY_ID") || is_set("AWS_SECRET_ACCESS_KEY");
    if has_keys || variables("AWS_SKIP_SIGNATURE").is_some_and(|skip| skip.eq_ignore_ascii_case("true")) {
        return Ok(found);
    }
    if explicit.is_some() && profile.is_none() {
        return Err(invalid(format!("found no profile {name} in ~/.aws/config and ~/.aws/credentials")));
    }
    let has_web_identity = is_set("AWS_WEB_IDENTITY_TOKEN_FILE") && is_set("AWS_ROLE_ARN");
    if explicit.is_none() && has_web_identity {
        return Ok(found);
    }
    let chain = Chain { profiles: &profiles, variables, region: found.region.clone() };
    let source = match profile {
        Some(profile) => chain.source(&name, profile, MAX_CHAIN).map_err(invalid)?,
        None => None,
    };
    let has_container = is_set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        || (is_set("AWS_CONTAINER_CREDENTIALS_FULL_URI") && is_set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
    let source = match source {
        Some(source) => source,
        None if explicit.is_some() => {
            return Err(invalid(format!(
                "the profile {name} has no credentials; run `aws configure --profile {name}`"
            )));
        }
        None if has_container => return Ok(found),
        None => chain.instance(),
    };
    found.provider = Some(Arc::new(Provider::new(source, secrets.clone())?));
    Ok(found)
}

/// Finds the source of a profile's credentials.
struct Chain<'a> {
    profiles: &'a Profiles,
    variables: Variables<'a>,
    region: Option<String>,
}

impl Chain<'_> {
    /// Returns the source of a profile; `None` if it has no credentials.
    fn source(&self, name: &str, profile: Settings<'_>, left: usize) -> Result<Option<Source>, String> {
        if left == 0 {
            return Err(format!(
                "the profile {name} refers to itself through source_profile; check ~/.aws/config"
            ));
        }
        if let Some(arn) = profile.get("role_arn") {
            return self.role(name, profile, arn, left).map(Some);
        }
        if let (Some(key_id), Some(secret_key)) =
            (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key"))
        {
            return Ok(Some(Source::Keys { key_id, secret_key, token: profile.get("aws_session_token") }));
        }
        if profile.get("sso_session").or(profile.get("sso_start_url")).is_some() {
            return self.sso(name, profile).map(Some);
        }
        Ok(profile.get("credential_process").map(Source::Process))
    }

    fn role(&self, name: &str, profile: Settings<'_>, arn: String, left: usize) -> Result<Source, String> {
        let region = (self.variables)("AWS_REGION").or_else(|| (self.variables)("AWS_DEFAULT_REGION"));
        let region = region.or_else(|| profile.get("region")).or_else(|| self.region.clone());
        let region = region.unwrap_or_else(|| "us-east-1".to_string());
        let sts = (self.variables)("AWS_ENDPOINT_URL_STS");
        let role = Role {
            arn,
            session: profile.get("role_session_name").unwrap_or_else(|| "pellucid".to_string()),
            external_id: profile.get("external_id"),
            sts: sts.unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com/")),
            region,
        };
        if let Some(file) = profile.get("web_identity_token_file") {
            return Ok(Source::WebIdentity { role, token_file: file.into() });
        }
        let base = match (profile.get("source_profile"), profile.get("credential_source").as_deref()) {
            // A profile may assume a role with its own keys.
            (Some(base), _) if base == name => {
                let (key_id, secret_key) =
                    profile.get("aws_access_key_id").zip(profile.get("aws_secret_access_key")).ok_or_else(
                        || format!("the profile {name} has no keys for its role; check ~/.aws/credentials"),
                    )?;
                Source::Keys { key_id, secret_key, token: profile.get("aws_session_token") }
            }
            (Some(base), _) => {
                let settings = self.profiles.profile(&base);
                let settings =
                    settings.ok_or_else(|| format!("found no profile {base}, the source of {name}"))?;
                let source = self.source(&base, settings, left - 1)?;
                source
                    .ok_or_else(|| format!("the profile {base}, the source of {name}, has no credentials"))?
            }
            (None, Some("Ec2InstanceMetadata")) => self.instance(),
            (None, source) => {
                return Err(format!(
                    "the profile {name} has a role and {}; set source_profile",
                    source.map_or("no source of it".to_string(), |source| format!("the source {source}"))
                ));
            }
        };
        Ok(Source::Role { role, base: Box::new(base) })
    }

    fn sso(&self, name: &str, profile: Settings<'_>) -> Result<Source, String> {
        let session = match profile.get("sso_session") {
            Some(session) => {
                let found = self.profiles.sso_session(&session);
                Some(found.ok_or_else(|| {
                    format!("there is no sso-session {session}, which the profile {name} names")
                })?)
            }
            None => None,
        };
        let setting = |key: &str| {
            let found = session.and_then(|session| session.get(key)).or_else(|| profile.get(key));
            found.ok_or_else(|| format!("the profile {name} lacks {key}; run `aws configure sso`"))
        };
        let portal = (self.variables)("AWS_ENDPOINT_URL_SSO");
        let region = setting("sso_region")?;
        let cache = folder(self.variables).ok_or("HOME is not set")?.join("sso").join("cache");
        Ok(Source::Sso {
            profile: name.to_string(),
            start_url: setting("sso_start_url")?,
            account: setting("sso_account_id")?,
            role: setting("sso_role_name")?,
            portal: portal.unwrap_or_else(|| format!("https://portal.sso.{region}.amazonaws.com")),
            cache,
        })
    }

    fn instance(&self) -> Source {
        let disabled =
            (self.variables)("AWS_EC2_METADATA_DISABLED").is_some_and(|d| d.eq_ignore_ascii_case("true"));
        let endpoint = (self.variables)("AWS_EC2_METADATA_SERVICE_ENDPOINT")
            .or_else(|| (self.variables)("AWS_METADATA_ENDPOINT"))
            .unwrap_or_else(|| "http://169.254.169.254".to_string());
        // Requests to an empty address fail at once.
        let endpoint = if disabled { String::new() } else { endpoint.trim_end_matches('/').to_string() };
        Source::Instance { endpoint }
    }
}

/// Fetches credentials when they are needed, and again before they expire.
struct Provider {
    source: Source,
    client: Client,
    secrets: Secrets,
    fetched: Mutex<Option<(Arc<AwsCredential>, Option<SystemTime>)>>,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}

impl Provider {
    fn new(source: Source, secrets: Secrets) -> Result<Self, Error> {
        if let Source::Keys { key_id, secret_key, token } = &source {
            secrets.learn([key_id.clone(), secret_key.clone()].into_iter().chain(token.clone()));
        }
        let timeout = if matches!(source, Source::Instance { .. }) { INSTANCE_TIMEOUT } else { TIMEOUT };
        let builder = Client::builder().redirect(Policy::none()).timeout(timeout).connect_timeout(timeout);
        let client = builder.build().map_err(|e| Error::Generic { store: "S3", source: e.into() })?;
        Ok(Self { source, client, secrets, fetched: Mutex::default() })
    }
}

#[async_trait]
impl CredentialProvider for Provider {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut fetched = self.fetched.lock().await;
        let now = SystemTime::now();
        if let Some((credential, expires)) = &*fetched
            && expires.is_none_or(|expires| expires > now + EARLY)
        {
            return Ok(Arc::clone(credential));
        }
        let new = match self.source.fetch(&self.client).await {
            Ok(new) => new,
            Err(why) => {
                // Those that are about to expire are better than none.
                return match &*fetched {
                    Some((credential, expires)) if expires.is_none_or(|expires| expires > now) => {
                        Ok(Arc::clone(credential))
                    }
                    _ => Err(Error::Generic {
                        store: "S3",
                        source: format!("cannot get credentials: {why}").into(),
                    }),
                };
            }
        };
        let AwsCredential { key_id, secret_key, token } = &new.credential;
        self.secrets.learn([key_id.clone(), secret_key.clone()].into_iter().chain(token.clone()));
        let credential = Arc::new(new.credential);
        *fetched = Some((Arc::clone(&credential), new.expires));
        Ok(credential)
    }
}

#[cfg(test)]
mod tests;
