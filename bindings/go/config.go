package gsel

/*
#include "shim.h"
*/
import "C"

import "unsafe"

// config.go: gsel.toml, and the mesh that it asks for.

// Config is a configuration. Calls on it may overlap, but Set is refused while another call uses it, such as Join. Close
// it; what was made from it keeps what it needs.
type Config struct{ object }

func newConfig(p *C.gsel_config, err error) (*Config, error) {
	if err != nil {
		return nil, err
	}
	c := &Config{}
	own(c, &c.object, "config", unsafe.Pointer(p), func(p unsafe.Pointer) { C.gsel_config_free((*C.gsel_config)(p)) })
	return c, nil
}

// LoadConfig reads a file; "": the file that GSEL_CONFIG names in the environment, or all defaults.
func LoadConfig(path string) (*Config, error) {
	var l lent
	defer l.free()
	var p *C.gsel_config
	var err *C.gsel_error
	status := C.gsel_config_load(l.given(path), &p, &err)
	return newConfig(p, check(status, &err))
}

// ParseConfig reads TOML; name stands for the file in messages.
func ParseConfig(toml, name string) (*Config, error) {
	var l lent
	defer l.free()
	var p *C.gsel_config
	var err *C.gsel_error
	status := C.gsel_config_parse(l.text(toml), l.text(name), &p, &err)
	return newConfig(p, check(status, &err))
}

// Get is the value of a key, such as "train.batch", as text; ok is false for an unknown key and after Close.
func (c *Config) Get(key string) (value string, ok bool) {
	var l lent
	defer l.free()
	c.keepOpen(func(p unsafe.Pointer) error {
		got := C.gsel_config_get((*C.gsel_config)(p), l.text(key))
		value, ok = text(got), got.data != nil
		return nil
	})
	return
}

// Set sets a key, as if the file set it.
func (c *Config) Set(key, value string) error {
	return c.set(key, func(l *lent) C.gsel_str { return l.text(value) })
}

// Unset removes a key: it has its default again.
func (c *Config) Unset(key string) error {
	return c.set(key, func(*lent) C.gsel_str { return C.gsel_str{} })
}

func (c *Config) set(key string, value func(*lent) C.gsel_str) error {
	var l lent
	defer l.free()
	return c.alone(func(p unsafe.Pointer) error {
		var err *C.gsel_error
		status := C.gsel_config_set((*C.gsel_config)(p), l.text(key), value(&l), &err)
		return check(status, &err)
	})
}

// Close releases the config.
func (c *Config) Close() error {
	return c.close()
}
