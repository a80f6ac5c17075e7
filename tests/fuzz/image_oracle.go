// Reads documents of images, and chooses among the entries of an index, as engines in Go do.
//
// Of the standard library alone. Documents go through encoding/json into the structs of
// github.com/opencontainers/image-spec 1.1. The choices are those of
//   - github.com/containerd/platforms 1.0.0-rc.1 (database.go, compare.go) in `images.Manifest` of
//     containerd 2.1 (core/images/image.go), and in `filterManifests` of moby 28
//     (distribution/pull_v2.go);
//   - github.com/containers/image 5.36 (internal/pkg/platform/platform_matcher.go,
//     internal/manifest/oci_index.go, docker_schema2_list.go), and of its 5.22, which Debian 12 has.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
)

type Platform struct {
	Architecture string   `json:"architecture"`
	OS           string   `json:"os"`
	OSVersion    string   `json:"os.version,omitempty"`
	OSFeatures   []string `json:"os.features,omitempty"`
	Variant      string   `json:"variant,omitempty"`
}

type Descriptor struct {
	MediaType    string            `json:"mediaType"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	URLs         []string          `json:"urls,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	Data         []byte            `json:"data,omitempty"`
	Platform     *Platform         `json:"platform,omitempty"`
	ArtifactType string            `json:"artifactType,omitempty"`
}

type Manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType,omitempty"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Config        Descriptor        `json:"config"`
	Layers        []Descriptor      `json:"layers"`
	Subject       *Descriptor       `json:"subject,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type Index struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType,omitempty"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Manifests     []Descriptor      `json:"manifests"`
	Subject       *Descriptor       `json:"subject,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type Configuration struct {
	Created      string   `json:"created,omitempty"`
	Author       string   `json:"author,omitempty"`
	Architecture string   `json:"architecture"`
	OS           string   `json:"os"`
	OSVersion    string   `json:"os.version,omitempty"`
	OSFeatures   []string `json:"os.features,omitempty"`
	Variant      string   `json:"variant,omitempty"`
	Config       struct {
		User         string              `json:"User,omitempty"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
		Env          []string            `json:"Env,omitempty"`
		Entrypoint   []string            `json:"Entrypoint,omitempty"`
		Cmd          []string            `json:"Cmd,omitempty"`
		Volumes      map[string]struct{} `json:"Volumes,omitempty"`
		WorkingDir   string              `json:"WorkingDir,omitempty"`
		Labels       map[string]string   `json:"Labels,omitempty"`
		StopSignal   string              `json:"StopSignal,omitempty"`
	} `json:"config,omitempty"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []struct {
		Created    string `json:"created,omitempty"`
		CreatedBy  string `json:"created_by,omitempty"`
		Author     string `json:"author,omitempty"`
		Comment    string `json:"comment,omitempty"`
		EmptyLayer bool   `json:"empty_layer,omitempty"`
	} `json:"history,omitempty"`
}

// document reads one document: its kind in a byte, and its bytes.
func document(kind byte, data []byte) interface{} {
	var value interface{}
	var err error
	switch kind {
	case 'm':
		held := Manifest{}
		err = json.Unmarshal(data, &held)
		value = held
	case 'i':
		held := Index{}
		err = json.Unmarshal(data, &held)
		value = held
	case 'c':
		held := Configuration{}
		err = json.Unmarshal(data, &held)
		value = held
	default:
		if !json.Valid(data) {
			return map[string]interface{}{}
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		err = decoder.Decode(&value)
	}
	if err != nil {
		return map[string]interface{}{}
	}
	return map[string]interface{}{"value": value}
}

func normalize(p Platform) Platform {
	p.OS = strings.ToLower(p.OS)
	if p.OS == "" {
		p.OS = "linux"
	}
	if p.OS == "macos" {
		p.OS = "darwin"
	}
	p.Architecture, p.Variant = strings.ToLower(p.Architecture), strings.ToLower(p.Variant)
	switch p.Architecture {
	case "i386":
		p.Architecture, p.Variant = "386", ""
	case "x86_64", "x86-64", "amd64":
		p.Architecture = "amd64"
		if p.Variant == "v1" {
			p.Variant = ""
		}
	case "aarch64", "arm64":
		p.Architecture = "arm64"
		switch p.Variant {
		case "8", "v8", "v8.0":
			p.Variant = ""
		case "9", "9.0", "v9.0":
			p.Variant = "v9"
		}
	case "armhf":
		p.Architecture, p.Variant = "arm", "v7"
	case "armel":
		p.Architecture, p.Variant = "arm", "v6"
	case "arm":
		switch p.Variant {
		case "", "7":
			p.Variant = "v7"
		case "5", "6", "8":
			p.Variant = "v" + p.Variant
		}
	}
	return p
}

var arm64Versions = map[string][][2]int{
	"v8": {{8, 0}}, "v8.0": {{8, 0}}, "v8.1": {{8, 1}}, "v8.2": {{8, 2}}, "v8.3": {{8, 3}},
	"v8.4": {{8, 4}}, "v8.5": {{8, 5}}, "v8.6": {{8, 6}}, "v8.7": {{8, 7}}, "v8.8": {{8, 8}},
	"v8.9": {{8, 9}},
	"v9":   {{9, 0}, {8, 5}}, "v9.0": {{9, 0}, {8, 5}}, "v9.1": {{9, 1}, {8, 6}},
	"v9.2": {{9, 2}, {8, 7}}, "v9.3": {{9, 3}, {8, 8}}, "v9.4": {{9, 4}, {8, 9}},
	"v9.5": {{9, 5}, {8, 9}}, "v9.6": {{9, 6}, {8, 9}}, "v9.7": {{9, 7}, {8, 9}},
}

func vector(p Platform) []Platform {
	with := func(architecture, variant string) Platform {
		return Platform{Architecture: architecture, OS: p.OS, Variant: variant}
	}
	all := []Platform{p}
	switch p.Architecture {
	case "amd64":
		if n, err := strconv.Atoi(strings.TrimPrefix(p.Variant, "v")); err == nil && n > 1 {
			for n--; n >= 1; n-- {
				all = append(all, with("amd64", "v"+strconv.Itoa(n)))
			}
		}
		all = append(all, with("386", ""))
	case "arm":
		if n, err := strconv.Atoi(strings.TrimPrefix(p.Variant, "v")); err == nil && n > 5 {
			for n--; n >= 5; n-- {
				all = append(all, with("arm", "v"+strconv.Itoa(n)))
			}
		}
	case "arm64":
		variant := p.Variant
		if variant == "" {
			variant = "v8"
		}
		all = nil
		versions, ok := arm64Versions[variant]
		if !ok {
			break
		}
		for _, version := range versions {
			for minor := version[1]; minor >= 0; minor-- {
				name := "v" + strconv.Itoa(version[0])
				if minor > 0 {
					name += "." + strconv.Itoa(minor)
				}
				all = append(all, with("arm64", name))
			}
		}
		if strings.HasPrefix(variant, "v8") || strings.HasPrefix(variant, "v9") {
			variant = "v8"
		}
		all = append(all, vector(with("arm", variant))...)
	}
	return all
}

// rank is the place of a platform in a vector, or -1; features count since platforms 1.0.
func rank(all []Platform, p Platform, hasFeatures bool) int {
	own := normalize(p)
	for place, step := range all {
		other := normalize(step)
		if own.OS == other.OS && own.Architecture == other.Architecture &&
			own.Variant == other.Variant && (!hasFeatures || len(p.OSFeatures) == 0) {
			return place
		}
	}
	return -1
}

// containerd is the first of `images.Manifest`, and of moby's `filterManifests` where `empty`
// platforms are none at all.
func containerd(entries []*Platform, wanted Platform, hasFeatures, empty bool) int {
	all := vector(normalize(wanted))
	type candidate struct{ entry, rank int }
	var found []candidate
	for number, p := range entries {
		if p == nil || empty && p.OS == "" && p.Architecture == "" {
			found = append(found, candidate{number, len(all)})
		} else if place := rank(all, *p, hasFeatures); place >= 0 {
			found = append(found, candidate{number, place})
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].rank < found[j].rank })
	if len(found) == 0 {
		return -1
	}
	return found[0].entry
}

var compatible = map[string][]string{"arm": {"v8", "v7", "v6", "v5"}, "arm64": {"v8"}}

func wantedPlatforms(wanted Platform) []Platform {
	var variants []string
	if wanted.Variant != "" {
		for place, variant := range compatible[wanted.Architecture] {
			if variant == wanted.Variant {
				variants = append(variants, compatible[wanted.Architecture][place:]...)
				break
			}
		}
		if variants == nil {
			variants = []string{wanted.Variant}
		}
		variants = append(variants, "")
	} else {
		variants = append([]string{""}, compatible[wanted.Architecture]...)
	}
	var all []Platform
	for _, variant := range variants {
		all = append(all, Platform{Architecture: wanted.Architecture, OS: wanted.OS, Variant: variant})
	}
	return all
}

func same(one, other Platform) bool {
	return one.OS == other.OS && one.Architecture == other.Architecture && one.Variant == other.Variant
}

// podman is `chooseInstance`; `older` that of 5.22.
func podman(entries []*Platform, zstd []bool, wanted Platform, older bool) int {
	for _, step := range wantedPlatforms(wanted) {
		first := -1
		for number, p := range entries {
			if p == nil || !same(*p, step) {
				continue
			}
			if older {
				return number
			}
			if first < 0 || zstd[number] && !zstd[first] {
				first = number
			}
		}
		if first >= 0 {
			return first
		}
	}
	first := -1
	for number, p := range entries {
		if p == nil && (first < 0 || !older && zstd[number] && !zstd[first]) {
			first = number
		}
	}
	return first
}

func choices(data []byte) interface{} {
	var asked struct {
		Entries []*Platform
		Zstd    []bool
		Wanted  Platform
	}
	if err := json.Unmarshal(data, &asked); err != nil {
		panic(err)
	}
	typed := asked.Wanted
	normal := normalize(typed)
	typed.OS, typed.Architecture = normal.OS, normal.Architecture
	found := map[string]int{}
	for _, hasFeatures := range []bool{false, true} {
		for _, empty := range []bool{false, true} {
			name := "containerd features=" + strconv.FormatBool(hasFeatures) + " empty=" + strconv.FormatBool(empty)
			found[name] = containerd(asked.Entries, asked.Wanted, hasFeatures, empty)
		}
	}
	for _, older := range []bool{false, true} {
		found["podman typed older="+strconv.FormatBool(older)] = podman(asked.Entries, asked.Zstd, typed, older)
		found["podman normalized older="+strconv.FormatBool(older)] = podman(asked.Entries, asked.Zstd, normal, older)
	}
	return found
}

// Each input is a byte for its kind, four for its length, and its bytes; each answer is one line.
func main() {
	input, output := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	defer output.Flush()
	encoder := json.NewEncoder(output)
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(input, head); err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
		data := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(input, data); err != nil {
			panic(err)
		}
		var answer interface{}
		if head[0] == 'p' {
			answer = choices(data)
		} else {
			answer = document(head[0], data)
		}
		if err := encoder.Encode(answer); err != nil {
			panic(err)
		}
	}
}
