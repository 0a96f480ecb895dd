// Command render renders a chart's templates with text/template, the engine that Helm uses, and implements those of
// Helm's functions that this chart calls. Helm itself takes minutes to build (../helm); this takes seconds and needs
// only the standard library.
//
//	render TEMPLATES < {"Values": …, "Release": …, "Chart": …, "existing": {"Deployment": […]}}
//
// "existing" holds the results of "lookup" by kind. The rendered files are printed as one JSON object, by name.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"
)

func main() {
	given := map[string]any{}
	decoder := json.NewDecoder(os.Stdin)
	decoder.UseNumber()
	check(decoder.Decode(&given))
	existing, _ := given["existing"].(map[string]any)
	root := template.New("").Option("missingkey=zero")
	root.Funcs(functions(root, existing))
	paths, err := filepath.Glob(filepath.Join(os.Args[1], "*"))
	check(err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check(err)
		template.Must(root.New(filepath.Base(path)).Parse(string(text)))
	}
	made := map[string]string{}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var text bytes.Buffer
		check(root.ExecuteTemplate(&text, name, given))
		made[name] = strings.ReplaceAll(text.String(), "<no value>", "")
	}
	check(json.NewEncoder(os.Stdout).Encode(made))
}

func functions(root *template.Template, existing map[string]any) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var text bytes.Buffer
			err := root.ExecuteTemplate(&text, name, data)
			return text.String(), err
		},
		"lookup": func(_, kind, _, _ string) map[string]any {
			return map[string]any{"items": existing[kind]}
		},
		"fail":    func(why string) (string, error) { return "", fmt.Errorf("%s", why) },
		"toYaml":  func(value any) string { return strings.TrimPrefix(yaml(value, 0), "\n") },
		"toJson":  func(value any) (string, error) { text, err := json.Marshal(value); return string(text), err },
		"quote":   func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"nindent": func(count int, text string) string { return "\n" + indented(count, text) },
		"replace": func(old, new, text string) string { return strings.ReplaceAll(text, old, new) },
		"default": func(otherwise, value any) any {
			if truth, _ := template.IsTrue(value); truth {
				return value
			}
			return otherwise
		},
		"join": func(by string, values any) string {
			var texts []string
			for _, value := range values.([]any) {
				texts = append(texts, fmt.Sprint(value))
			}
			return strings.Join(texts, by)
		},
		"splitList": func(by, text string) []any {
			var parts []any
			for _, part := range strings.Split(text, by) {
				parts = append(parts, part)
			}
			return parts
		},
		"list":   func(values ...any) []any { return values },
		"append": func(values []any, value any) []any { return append(append([]any{}, values...), value) },
		"has": func(value any, values []any) bool {
			for _, each := range values {
				if each == value {
					return true
				}
			}
			return false
		},
		"dict": func(pairs ...any) map[string]any {
			made := map[string]any{}
			for place := 0; place < len(pairs); place += 2 {
				made[pairs[place].(string)] = pairs[place+1]
			}
			return made
		},
		"get": func(from map[string]any, key string) any {
			if value, ok := from[key]; ok {
				return value
			}
			return ""
		},
		"set":      func(to map[string]any, key string, value any) map[string]any { to[key] = value; return to },
		"deepCopy": func(value any) any { return copied(value) },
		"mergeOverwrite": func(to, from map[string]any) map[string]any {
			for key, value := range from {
				to[key] = value
			}
			return to
		},
	}
}

func copied(value any) any {
	if from, ok := value.(map[string]any); ok {
		made := map[string]any{}
		for key, value := range from {
			made[key] = copied(value)
		}
		return made
	}
	return value
}

// yaml formats a value in block style: each collection starts on a new line.
func yaml(value any, depth int) string {
	pad := "\n" + strings.Repeat("  ", depth)
	switch typed := value.(type) {
	case map[string]any:
		if len(typed) == 0 {
			return " {}"
		}
		var keys []string
		for key := range typed {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		var text strings.Builder
		for _, key := range keys {
			name, _ := json.Marshal(key)
			text.WriteString(pad + string(name) + ":" + yaml(typed[key], depth+1))
		}
		return text.String()
	case []any:
		if len(typed) == 0 {
			return " []"
		}
		var text strings.Builder
		for _, each := range typed {
			text.WriteString(pad + "-" + yaml(each, depth+1))
		}
		return text.String()
	}
	text, err := json.Marshal(value)
	check(err)
	return " " + string(text)
}

func indented(count int, text string) string {
	pad := strings.Repeat(" ", count)
	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}
