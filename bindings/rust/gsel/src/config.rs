//! gsel.toml: the one file that says how a model is trained. `docs/config.md` lists its keys.
use crate::error::{check, made};
use crate::{text, Result};
use gsel_sys as sys;
use std::path::Path;
use std::ptr::NonNull;

/// A configuration. Objects made from it keep what they need.
#[derive(Debug)]
pub struct Config(NonNull<sys::gsel_config>);

// C allows any thread; changes need `&mut`.
unsafe impl Send for Config {}
unsafe impl Sync for Config {}

impl Config {
    fn owned(config: *mut sys::gsel_config) -> Config {
        Config(NonNull::new(config).expect("a call that succeeds gives an object"))
    }

    /// Reads and checks a file. Errors have file, line and key.
    pub fn load(path: impl AsRef<Path>) -> Result<Config> {
        let path = path.as_ref().to_string_lossy();
        made(|out, error| unsafe { sys::gsel_config_load(text::given(&path), out, error) }).map(Config::owned)
    }

    /// The file that the variable GSEL_CONFIG names, as `gsel run --config` sets it; all defaults if it is not set.
    pub fn from_env() -> Result<Config> {
        made(|out, error| unsafe { sys::gsel_config_load(text::optional(None), out, error) }).map(Config::owned)
    }

    /// Reads and checks text; `name` stands for the file in messages.
    pub fn parse(toml: &str, name: &str) -> Result<Config> {
        made(|out, error| unsafe { sys::gsel_config_parse(text::given(toml), text::given(name), out, error) })
            .map(Config::owned)
    }

    /// A builder that begins with all defaults.
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder { keys: Vec::new() }
    }

    /// Value of a key by its dotted name, such as "train.batch": that of the file, else the default. `None` for an unknown
    /// key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let value = unsafe { sys::gsel_config_get(self.0.as_ptr(), text::given(key)) };
        if value.data.is_null() {
            return None;
        }
        Some(text::borrowed(self, value))
    }

    /// Sets a key as if the file set it: text without quotes, an array as TOML writes it. On an error nothing is changed.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        check(|error| unsafe { sys::gsel_config_set(self.0.as_ptr(), text::given(key), text::given(value), error) })
    }

    /// Removes a key, which has its default again.
    pub fn unset(&mut self, key: &str) -> Result<()> {
        check(|error| unsafe { sys::gsel_config_set(self.0.as_ptr(), text::given(key), text::optional(None), error) })
    }

    pub(crate) fn raw(&self) -> *mut sys::gsel_config {
        self.0.as_ptr()
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        unsafe { sys::gsel_config_free(self.0.as_ptr()) }
    }
}

/// Keys of a configuration, one after the other.
///
/// ```
/// let config = gsel::Config::builder().set("train.optimizer", "sgd").set("train.batch", 8).build()?;
/// assert_eq!(config.get("train.batch"), Some("8"));
/// # Ok::<(), gsel::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ConfigBuilder {
    keys: Vec<(String, String)>,
}

impl ConfigBuilder {
    /// Sets a key, see [`Config::set`].
    pub fn set(mut self, key: &str, value: impl ToString) -> Self {
        self.keys.push((key.to_owned(), value.to_string()));
        self
    }
    /// Makes the configuration. The first key that is wrong is the error.
    pub fn build(self) -> Result<Config> {
        let mut config = Config::parse("", "builder")?;
        self.keys.iter().try_for_each(|(key, value)| config.set(key, value))?;
        Ok(config)
    }
}
