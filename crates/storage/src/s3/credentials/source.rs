//! Fetches credentials from where a profile or an instance has them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use http::Method;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpClient, HttpRequestBody};
use reqwest::Client;
use serde::Deserialize;

/// Lifetime of the token of the instance's metadata, in seconds.
const INSTANCE_TOKEN_S: &str = "21600";

/// A place that has credentials.
#[derive(Clone)]
pub(super) enum Source {
    /// Keys that do not expire.
    Keys { key_id: String, secret_key: String, token: Option<String> },
    /// A program that prints credentials.
    Process(String),
    /// A session that `aws sso login` started.
    Sso { profile: String, start_url: String, account: String, role: String, portal: String, cache: PathBuf },
    /// A role that the owner of other credentials may assume.
    Role { role: Role, base: Box<Source> },
    /// A role that the owner of a token may assume.
    WebIdentity { role: Role, token_file: PathBuf },
    /// The role of this instance.
    Instance { endpoint: String },
}

/// A role to assume.
#[derive(Clone)]
pub(super) struct Role {
    pub arn: String,
    pub session: String,
    pub external_id: Option<String>,
    /// Address of the token service.
    pub sts: String,
    pub region: String,
}

/// Credentials with the time at which they expire.
pub(super) struct Fetched {
    pub credential: AwsCredential,
    pub expires: Option<SystemTime>,
}

/// Credentials as services and programs print them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    #[serde(alias = "accessKeyId")]
    access_key_id: String,
    #[serde(alias = "secretAccessKey")]
    secret_access_key: String,
    #[serde(alias = "Token", alias = "sessionToken")]
    session_token: Option<String>,
    expiration: Option<String>,
}

impl From<Printed> for Fetched {
    fn from(printed: Printed) -> Self {
        let expires = printed.expiration.and_then(|time| humantime::parse_rfc3339_weak(&time).ok());
        let credential = AwsCredential {
            key_id: printed.access_key_id,
            secret_key: printed.secret_access_key,
            token: printed.session_token,
        };
        Fetched { credential, expires }
    }
}

impl Source {
    /// Fetches credentials. An error contains none.
    ///
    /// # Errors
    /// Returns the cause and the way out.
    pub(super) fn fetch<'a>(&'a self, client: &'a Client) -> BoxFuture<'a, Result<Fetched, String>> {
        Box::pin(async move {
            match self {
                Self::Keys { key_id, secret_key, token } => {
                    let (key_id, secret_key) = (key_id.clone(), secret_key.clone());
                    let credential = AwsCredential { key_id, secret_key, token: token.clone() };
                    Ok(Fetched { credential, expires: None })
                }
                Self::Process(command) => {
                    let command = command.clone();
                    let ran = tokio::task::spawn_blocking(move || process(&command)).await;
                    ran.unwrap_or_else(|_| Err("the program of credential_process panicked".to_string()))
                }
                Self::Sso { .. } => self.sso(client).await,
                Self::Role { role, base } => {
                    let base = base.fetch(client).await?.credential;
                    role.assume(client, &base).await
                }
                Self::WebIdentity { role, token_file } => role.assume_by_token(client, token_file).await,
                Self::Instance { endpoint } => instance(client, endpoint).await,
            }
        })
    }

    async fn sso(&self, client: &Client) -> Result<Fetched, String> {
        let Self::Sso { profile, start_url, account, role, portal, cache } = self else {
            return Err("not an SSO session".to_string());
        };
        let login = format!("run `aws sso login --profile {profile}`");
        let token = sso_token(cache, start_url)
            .ok_or_else(|| format!("the SSO session is over or missing; {login}"))?;
        let query = [("account_id", account), ("role_name", role)];
        let url = reqwest::Url::parse_with_params(&format!("{portal}/federation/credentials"), query)
            .map_err(|e| format!("the address of the SSO portal is invalid ({e}); check sso_region"))?;
        let request = client.get(url).header("x-amz-sso_bearer_token", token);
        let answer = request.send().await.map_err(|e| unreachable("the SSO portal", e))?;
        if !answer.status().is_success() {
            return Err(format!(
                "the SSO portal refuses the role {role} of the account {account} ({}); {login}, or check the profile",
                answer.status()
            ));
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer {
            role_credentials: Keys,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Keys {
            access_key_id: String,
            secret_access_key: String,
            session_token: String,
            /// Milliseconds since 1970.
            expiration: u64,
        }
        let text = answer.text().await.map_err(|e| unreachable("the SSO portal", e))?;
        let keys = serde_json::from_str::<Answer>(&text);
        let keys = keys.map_err(|_| "the SSO portal sent an unknown answer; try again".to_string())?;
        let keys = keys.role_credentials;
        Ok(Fetched {
            credential: AwsCredential {
                key_id: keys.access_key_id,
                secret_key: keys.secret_access_key,
                token: Some(keys.session_token),
            },
            expires: SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(keys.expiration)),
        })
    }
}

fn unreachable(service: &str, error: reqwest::Error) -> String {
    format!("{service} does not answer ({}); check the network", error.without_url())
}

/// Finds the token of an SSO session that has not expired.
fn sso_token(cache: &Path, start_url: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cached {
        start_url: String,
        access_token: String,
        expires_at: String,
    }
    // The file's name is a hash of the session's; a folder has few files.
    let files = std::fs::read_dir(cache).ok()?.flatten();
    let cached =
        files.filter_map(|file| serde_json::from_slice::<Cached>(&std::fs::read(file.path()).ok()?).ok());
    let now = SystemTime::now();
    let mut valid = cached.filter(|cached| {
        // Old versions of the command write `UTC` for `Z`.
        let expires = humantime::parse_rfc3339_weak(&cached.expires_at.replace("UTC", "Z"));
        cached.start_url.trim_end_matches(['/', '#']) == start_url.trim_end_matches(['/', '#'])
            && expires.is_ok_and(|expires| expires > now)
    });
    valid.next().map(|cached| cached.access_token)
}

/// Runs a program that prints credentials.
fn process(command: &str) -> Result<Fetched, String> {
    // Its own messages may contain secrets.
    let ran = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let ran =
        ran.map_err(|e| format!("cannot run the program of credential_process ({e}); check the profile"))?;
    if !ran.status.success() {
        return Err(format!("the program of credential_process failed ({}); run it by hand", ran.status));
    }
    let printed = serde_json::from_slice::<Printed>(&ran.stdout);
    let printed =
        printed.map_err(|_| "the program of credential_process printed no credentials; run it by hand")?;
    Ok(printed.into())
}

impl Role {
    /// Assumes the role with the credentials of its user.
    async fn assume(&self, client: &Client, user: &AwsCredential) -> Result<Fetched, String> {
        let mut query = vec![
            ("Action", "AssumeRole"),
            ("Version", "2011-06-15"),
            ("RoleArn", &self.arn),
            ("RoleSessionName", &self.session),
        ];
        if let Some(id) = &self.external_id {
            query.push(("ExternalId", id));
        }
        let url = reqwest::Url::parse_with_params(&self.sts, query)
            .map_err(|e| format!("the address of the token service is invalid ({e})"))?;
        let mut request = http::Request::new(HttpRequestBody::empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() =
            url.as_str().parse().map_err(|_| "the address of the token service is invalid".to_string())?;
        AwsAuthorizer::new(user, "sts", &self.region).authorize(&mut request, None);
        let sender = HttpClient::new(client.clone());
        let answer = sender.execute(request).await;
        let answer =
            answer.map_err(|_| "the token service does not answer; check the network".to_string())?;
        let status = answer.status();
        let body = answer.into_body().bytes().await.unwrap_or_default();
        self.of_answer(status.as_u16(), &String::from_utf8_lossy(&body))
    }

    /// Assumes the role with a token.
    async fn assume_by_token(&self, client: &Client, file: &Path) -> Result<Fetched, String> {
        let token = std::fs::read_to_string(file).map_err(|e| {
            format!("cannot read the token in {} ({e}); check web_identity_token_file", file.display())
        })?;
        let query = [
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", "2011-06-15"),
            ("RoleArn", &self.arn),
            ("RoleSessionName", &self.session),
            ("WebIdentityToken", token.trim()),
        ];
        let url = reqwest::Url::parse_with_params(&self.sts, query)
            .map_err(|e| format!("the address of the token service is invalid ({e})"))?;
        let answer = client.post(url).header("Content-Length", "0").send().await;
        let answer = answer.map_err(|e| unreachable("the token service", e))?;
        let status = answer.status().as_u16();
        let body = answer.text().await.map_err(|e| unreachable("the token service", e))?;
        self.of_answer(status, &body)
    }

    /// Reads the answer of the token service.
    fn of_answer(&self, status: u16, body: &str) -> Result<Fetched, String> {
        let tag = |name: &str| {
            let (_, rest) = body.split_once(&format!("<{name}>"))?;
            rest.split_once(&format!("</{name}>")).map(|(text, _)| text.to_string())
        };
        if status != 200 {
            let code = tag("Code").unwrap_or_else(|| status.to_string());
            return Err(format!(
                "the role {} is refused ({code}); check the profile and the role's trust",
                self.arn
            ));
        }
        let keys = tag("AccessKeyId").zip(tag("SecretAccessKey"));
        let (key_id, secret_key) = keys.ok_or("the token service sent an unknown answer; try again")?;
        Ok(Fetched {
            credential: AwsCredential { key_id, secret_key, token: tag("SessionToken") },
            expires: tag("Expiration").and_then(|time| humantime::parse_rfc3339_weak(&time).ok()),
        })
    }
}

/// Asks the metadata service of an instance.
async fn instance(client: &Client, endpoint: &str) -> Result<Fetched, String> {
    let none = || {
        "found no credentials in the environment, in ~/.aws or of this instance; set AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            .to_string()
    };
    let text = async |request: reqwest::RequestBuilder| {
        let answer = request.send().await.map_err(|_| none())?;
        if answer.status().is_success() { answer.text().await.map_err(|_| none()) } else { Err(none()) }
    };
    let token = client.put(format!("{endpoint}/latest/api/token"));
    let token = text(token.header("X-aws-ec2-metadata-token-ttl-seconds", INSTANCE_TOKEN_S)).await?;
    let get = |path: &str| {
        client
            .get(format!("{endpoint}/latest/meta-data/iam/security-credentials/{path}"))
            .header("X-aws-ec2-metadata-token", &token)
    };
    let roles = text(get("")).await?;
    let role = roles.lines().next().ok_or_else(none)?.trim();
    let printed = serde_json::from_str::<Printed>(&text(get(role)).await?);
    Ok(printed
        .map_err(|_| "the metadata of this instance has no credentials; check its role".to_string())?
        .into())
}
