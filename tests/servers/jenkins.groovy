// Runs ci/jenkins by hand, with stand-ins for the steps of Jenkins, in the Groovy that Jenkins has
// (2.4.21, Debian's package groovy). In an empty folder with a requirements.in:
//     UV_FIND_LINKS=WHEELS groovy ROOT/tests/servers/jenkins.groovy ROOT [ARGS]
// WHEELS is where the wheel of buildmatrix lies, ARGS replaces the arguments of the Jenkinsfile.
import org.codehaus.groovy.control.CompilerConfiguration

class Steps {
    File workspace
    Map environment
    List log = []

    Map getEnv() { environment }

    def withEnv(List pairs, Closure body) {
        def before = environment
        environment = before + pairs.collectEntries {
            def (name, value) = it.toString().split('=', 2)
            [name, value]
        }
        try { body() } finally { environment = before }
    }

    def sh(String script) {
        // A script with a first line of its own is run by itself.
        assert script.startsWith('#!')
        def file = File.createTempFile('step', '.sh')
        file.text = script
        file.executable = true
        def builder = new ProcessBuilder(file.path).directory(workspace).inheritIO()
        builder.environment().putAll(environment)
        def code = builder.start().waitFor()
        file.delete()
        if (code) throw new Exception("script returned exit code $code")
    }

    def junit(Map options) {
        def file = new File(workspace, options.testResults)
        assert file.exists() || options.allowEmptyResults
        def failures = file.exists() ? new XmlSlurper().parse(file).'**'.count { it.name() == 'failure' } : 0
        log << "junit: $failures failures"
    }

    def archiveArtifacts(Map options) {
        def names = (new File(workspace, options.artifacts).parentFile.list() ?: []).sort()
        assert names || options.allowEmptyArchive
        log << "artifacts: $names"
    }
}

class Pipeline {
    def library, args

    def pipeline(Closure body) { into(body) }
    def agent(Closure body) { into(body) }
    def docker(Closure body) { into(body) }
    def image(String name) { println "image: $name" }
    def stages(Closure body) { into(body) }
    def stage(String name, Closure body) { into(body) }
    def steps(Closure body) { into(body) }
    def buildmatrix(Map config) { library.call(config + (args == null ? [:] : [args: args])) }

    private into(Closure body) {
        body.delegate = this
        body.resolveStrategy = Closure.DELEGATE_FIRST
        body()
    }
}

def folder = new File(args[0], 'ci/jenkins')
def here = new File('').absoluteFile
def temporary = new File("$here@tmp")
temporary.mkdir()
def steps = new Steps()
steps.workspace = here
steps.environment = System.getenv() + [WORKSPACE_TMP: temporary.path]
def settings = new CompilerConfiguration(scriptBaseClass: 'groovy.util.DelegatingScript')
def shell = new GroovyShell(this.class.classLoader, new Binding(), settings)
def library = shell.parse(new File(folder, 'vars/buildmatrix.groovy'))
library.setDelegate(steps)
def pipeline = new Pipeline()
pipeline.library = library
pipeline.args = args.length > 1 ? args[1] : null
def text = new File(folder, 'Jenkinsfile').text.replace("@Library('buildmatrix') _", '')
def script = shell.parse(text)
script.setDelegate(pipeline)
try {
    script.run()
    println 'SUCCESS'
} catch (Exception error) {
    println "FAILURE: $error.message"
}
steps.log.each { println it }
