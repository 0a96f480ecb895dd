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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"
)

func main() {
	values := map[string]any{}
	decoder := json.NewDecoder(os.Stdin)
	decoder.UseNumber()
	check(decoder.Decode(&values))
	existing, _ := values["existing"].(map[string]any)
	root := template.New("").Option("missingkey=zero")
	root.Funcs(functions(root, existing))
	paths, err := filepath.Glob(filepath.Join(os.Args[1], "*"))
	check(err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check(err)
		template.Must(root.New(filepath.Base(path)).Parse(string(text)))
	}
	files := map[string]string{}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var text bytes.Buffer
		check(root.ExecuteTemplate(&text, name, values))
		files[name] = strings.ReplaceAll(text.String(), "<no value>", "")
	}
	check(json.NewEncoder(os.Stdout).Encode(files))
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
		"fail":    func(message string) (string, error) { return "", errors.New(message) },
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
			for _, item := range values {
				if item == value {
					return true
				}
			}
			return false
		},
		"dict": func(pairs ...any) map[string]any {
			dict := map[string]any{}
			for i := 0; i < len(pairs); i += 2 {
				dict[pairs[i].(string)] = pairs[i+1]
			}
			return dict
		},
		"get": func(from map[string]any, key string) any {
			if value, ok := from[key]; ok {
				return value
			}
			return ""
		},
		"set":      func(to map[string]any, key string, value any) map[string]any { to[key] = value; return to },
		"deepCopy": func(value any) any { return deepCopy(value) },
		"mergeOverwrite": func(to, from map[string]any) map[string]any {
			for key, value := range from {
				to[key] = value
			}
			return to
		},
	}
}

func deepCopy(value any) any {
	if from, ok := value.(map[string]any); ok {
		to := map[string]any{}
		for key, item := range from {
			to[key] = deepCopy(item)
		}
		return to
	}
	return value
}

// yaml formats a value in block style: each collection starts on a new line.
func yaml(value any, depth int) string {
	pad := "\n" + strings.Repeat("  ", depth)
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			return " {}"
		}
		var keys []string
		for key := range value {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		var text strings.Builder
		for _, key := range keys {
			name, _ := json.Marshal(key)
			text.WriteString(pad + string(name) + ":" + yaml(value[key], depth+1))
		}
		return text.String()
	case []any:
		if len(value) == 0 {
			return " []"
		}
		var text strings.Builder
		for _, item := range value {
			text.WriteString(pad + "-" + yaml(item, depth+1))
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
